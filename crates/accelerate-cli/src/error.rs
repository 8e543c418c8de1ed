//! The errors of this command, their exit codes and their hints.

use std::{io, num::NonZeroUsize, path::PathBuf, process::ExitCode};

use accelerate_plan::{Hint, cluster::ClusterError, settings::Origin};

use crate::{
    configuration::ConfigurationError,
    launch::{hosts::HostsError, rendezvous},
};

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    #[error("cannot plan the launch")]
    Plan(#[from] accelerate_plan::Error),

    #[error(transparent)]
    Configuration(#[from] ConfigurationError),

    #[error("cannot tell the place of this process")]
    Cluster(#[from] ClusterError),

    #[error("cannot start the job on other machines")]
    Hosts(#[from] HostsError),

    #[error("cannot meet the other machines")]
    Rendezvous(#[from] rendezvous::Error),

    #[error("the machines agreed on something that cannot be: no place for this one")]
    BadRound,

    #[error("{what} is not supported yet ({origin})")]
    NotSupported { what: &'static str, origin: Origin },

    #[error(
        "`num_processes` is `{total}` ({origin}): expected a multiple of `num_machines` \
         ({num_machines}), because `c10d` gives machines their numbers as they come"
    )]
    UnevenByArrival {
        total: NonZeroUsize,
        origin: Origin,
        num_machines: NonZeroUsize,
    },

    #[error("a job on {num_machines} machines needs `{what}`")]
    MissingForMachines {
        what: &'static str,
        num_machines: NonZeroUsize,
    },

    #[error(
        "`{name}` is `{found}` ({origin}): expected `{expected}`, because `{variable}` says so"
    )]
    ClusterDisagrees {
        name: &'static str,
        found: usize,
        origin: Origin,
        variable: &'static str,
        expected: usize,
    },

    #[error("`--module` and `--no_python` exclude each other")]
    ModuleWithoutPython,

    #[error("no program `{program}` in `{}` or on the search path", folder.display())]
    ProgramMissing { program: String, folder: PathBuf },

    #[error("`{}` is a program, but it is not executable", path.display())]
    ProgramNotExecutable { path: PathBuf },

    #[error("cannot read the program `{}`", path.display())]
    ProgramUnreadable { path: PathBuf, source: io::Error },

    #[error(
        "no Python interpreter for `{program}`: expected `python` or `python3` on the search path"
    )]
    PythonMissing { program: String },

    #[error(
        "`PYTHON_EXEC` names `{python}`: expected an executable, by path or on the search path"
    )]
    ChosenPythonMissing { python: String },

    #[error("port {port} is in use")]
    PortBusy { port: u16, source: io::Error },

    #[error("port {port} is taken by another `accelerate launch` that is running")]
    PortTaken { port: u16 },

    #[error("cannot use port {port}")]
    PortRefused { port: u16, source: io::Error },

    #[error("cannot find a free port")]
    NoFreePort { source: io::Error },

    #[error("`--local_ranks_filter` names rank {rank}: expected ranks below {num_processes}")]
    FilterOutOfRange { rank: usize, num_processes: usize },

    #[error("`--tee` names rank {rank}: expected ranks below {num_processes}")]
    TeeOutOfRange { rank: usize, num_processes: usize },

    #[error("cannot write log files into `{}`", path.display())]
    LogFolder { path: PathBuf, source: io::Error },

    #[error("cannot write the report `{}`", path.display())]
    Report {
        path: PathBuf,
        source: Box<accelerate_formats::Error>,
    },

    #[error("cannot start a process for rank {rank}")]
    Start { rank: usize, source: io::Error },

    #[error("cannot {doing}")]
    System {
        doing: &'static str,
        source: io::Error,
    },
}

impl Error {
    /// 1 for what the user can change, 2 for a wrong command line, 70 for the rest.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if let Self::Hosts(error) = self {
            return error.exit_code();
        }
        ExitCode::from(match self {
            Self::Rendezvous(error) if error.is_usage() => 2,
            Self::ModuleWithoutPython
            | Self::NotSupported { .. }
            | Self::MissingForMachines { .. }
            | Self::UnevenByArrival { .. }
            | Self::ClusterDisagrees { .. }
            | Self::FilterOutOfRange { .. }
            | Self::TeeOutOfRange { .. } => 2,
            Self::Plan(_) => 2,
            Self::System { .. } | Self::BadRound => 70,
            _ => 1,
        })
    }
}

impl Hint for Error {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Plan(error) => return error.hint(),
            Self::Configuration(error) => return error.hint(),
            Self::Cluster(error) => return error.hint(),
            Self::Hosts(error) => return error.hint(),
            Self::Rendezvous(
                rendezvous::Error::EndpointHost { .. } | rendezvous::Error::EndpointPort { .. },
            ) => "correct `main_process_ip`, wherever it is given: by flag, variable or file",
            Self::Rendezvous(error) if error.is_usage() => "correct `--rdzv_conf`",
            Self::Rendezvous(error) => return error.hint(),
            Self::NotSupported { .. } => {
                "use `--cpu`, `--multi_gpu`, `--use_fsdp` or `--use_deepspeed`, or another config \
                 file"
            }
            Self::MissingForMachines { what, .. } => {
                let which = match *what {
                    "machine_rank" => "another one on each machine, from 0",
                    _ => "the same on every machine",
                };
                return Some(format!("give `--{what}`, {which}"));
            }
            Self::UnevenByArrival { .. } => {
                "say how many processes each machine starts with `--num_processes_per_machine`"
            }
            Self::ClusterDisagrees { name, variable, .. } => {
                return Some(format!(
                    "leave out `{name}`, or unset `{variable}` if this is not a part of that job"
                ));
            }
            Self::ModuleWithoutPython => {
                "`--module` runs a Python module, `--no_python` a program of any kind: keep one"
            }
            Self::ProgramMissing { .. } => {
                "give a path to an executable or to a Python script, or `--module` with the name \
                 of a Python module"
            }
            Self::ProgramNotExecutable { path } => {
                return Some(format!("run `chmod +x {}`", path.display()));
            }
            Self::PythonMissing { .. } => {
                "install Python or set `PYTHON_EXEC` to the interpreter; `--no_python` runs other \
                 programs"
            }
            Self::ChosenPythonMissing { .. } => "correct `PYTHON_EXEC` or unset it",
            Self::PortBusy { .. } | Self::PortTaken { .. } | Self::PortRefused { .. } => {
                "leave out `--main_process_port` and a free port is chosen, or name another one"
            }
            Self::Report { .. } => "name a file in a folder that can be written with `--report`",
            Self::LogFolder { .. } => "name a folder that can be written with `--log_dir`",
            _ => return None,
        };
        Some(text.to_owned())
    }
}
