//! Why a job cannot be started through another launcher.

use std::{io, path::PathBuf, process::ExitCode};

use accelerate_plan::{Hint, settings::MultinodeLauncher};

use super::mpi::Flavour;

/// Why the command could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum HostsError {
    #[error(transparent)]
    Variable(#[from] accelerate_plan::Error),

    #[error("neither `mpirun` nor `mpiexec` is on the search path")]
    MpiMissing,

    #[error("cannot ask `{}` for its version", program.display())]
    VersionUnknown { program: PathBuf, source: io::Error },

    #[error("`{}` is of {found}: expected {expected} for the launcher `{backend}`", program.display())]
    WrongMpi {
        backend: MultinodeLauncher,
        expected: &'static str,
        program: PathBuf,
        found: Flavour,
    },

    #[error("`{}` (Open MPI) refuses to work for root", program.display())]
    RootRefused { program: PathBuf },

    #[error("no program `{program}` on the search path, which the launcher `{backend}` needs")]
    ProgramMissing {
        program: &'static str,
        backend: MultinodeLauncher,
    },

    #[error("the launcher `{backend}` needs a hostfile")]
    NoHostfile { backend: MultinodeLauncher },

    #[error("cannot read the hostfile `{}`", path.display())]
    HostfileUnreadable { path: PathBuf, source: io::Error },

    #[error("{}:{line}: expected `host slots=N` with N at least 1, found `{text}`", path.display())]
    HostfileLine {
        path: PathBuf,
        line: usize,
        text: String,
    },

    #[error("{}:{line}: host `{host}` was listed in line {first} already", path.display())]
    DuplicateHost {
        path: PathBuf,
        line: usize,
        first: usize,
        host: String,
    },

    #[error("the hostfile `{}` lists no host", path.display())]
    NoHosts { path: PathBuf },

    #[error("an inclusion and an exclusion filter exclude each other")]
    BothFilters,

    #[error("cannot read `{part}` of a filter: expected `host` or `host:slot,slot`")]
    FilterSyntax { part: String },

    #[error("a filter names host `{host}`: expected a host of the hostfile: {known}")]
    UnknownHost { host: String, known: String },

    #[error("a filter names slot {slot} of host `{host}`: expected a slot below {slots}")]
    UnknownSlot {
        host: String,
        slot: usize,
        slots: usize,
    },

    #[error("the filters leave no host of the hostfile")]
    NothingLeft,

    #[error("the hostfile lists {hosts} hosts, but the job has {machines} machines")]
    MachineCount { hosts: usize, machines: usize },

    #[error("{processes} processes cannot be shared out evenly among {machines} machines")]
    Uneven { processes: usize, machines: usize },

    #[error("host `{host}` has {slots} slots: expected at least {needed}, one for each process")]
    TooFewSlots {
        host: String,
        slots: usize,
        needed: usize,
    },

    #[error(
        "the launcher `{backend}` starts equally many processes on each host: expected {expected} \
         on `{host}` as on `{first}`, found {found}"
    )]
    UnequalSlots {
        backend: MultinodeLauncher,
        first: String,
        host: String,
        expected: usize,
        found: usize,
    },

    #[error(
        "the launcher `{backend}` cannot choose slots: expected the first ones of host `{host}`, \
         found {slots:?}"
    )]
    ChosenSlots {
        backend: MultinodeLauncher,
        host: String,
        slots: Vec<usize>,
    },

    #[error("the launcher `slurm` needs the number of processes, or a hostfile")]
    NoProcessCount,

    #[error("the launcher `nossh` needs the number of this machine")]
    NoMachineRank,

    #[error("machine {rank} is not of this job: expected a number below {machines}")]
    MachineRank { rank: usize, machines: usize },

    #[error("nothing says at which address the processes meet")]
    NoMasterAddress,

    #[error("cannot learn the address of host `{host}` by `ssh {host} hostname -I`: {answer}")]
    FirstHost { host: String, answer: String },

    #[error("cannot run `ssh` to learn the address of host `{host}`")]
    Ssh { host: String, source: io::Error },

    #[error("the argument `{argument}` cannot be sent through a shell: it holds a null byte")]
    NullByte { argument: String },

    #[error("cannot read the file of variables `{}`", path.display())]
    EnvFileUnreadable { path: PathBuf, source: io::Error },

    #[error("cannot write the file of variables `{}`", path.display())]
    EnvFileUnwritable { path: PathBuf, source: io::Error },

    #[error("`{variable}` does not describe the machines of a job: {problem}")]
    WorldInfo {
        variable: &'static str,
        problem: String,
    },
}

impl HostsError {
    /// 2 for what is wrong on the command line, 1 for the rest that the user can change.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::NoHostfile { .. }
            | Self::BothFilters
            | Self::FilterSyntax { .. }
            | Self::NoProcessCount
            | Self::NoMachineRank
            | Self::MachineRank { .. } => 2,
            _ => 1,
        })
    }
}

impl Hint for HostsError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Variable(error) => return error.hint(),
            Self::MpiMissing => {
                "install Open MPI, Intel MPI or MVAPICH, or leave out `mpirun_config`: then run \
                 `mpirun ... accelerate launch ...` yourself, or start one launcher per machine"
            }
            Self::VersionUnknown { .. } => "check that `mpirun --version` works in a shell",
            Self::WrongMpi { .. } => {
                "put the other MPI first on `PATH`, or name the launcher that fits the one found"
            }
            Self::RootRefused { .. } => {
                "work as another user; where root is safe, as in a container, set \
                 `OMPI_ALLOW_RUN_AS_ROOT=1` and `OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1`"
            }
            Self::ProgramMissing { program, .. } => {
                return Some(format!(
                    "install `{program}`, or choose another way with \
                     `--deepspeed_multinode_launcher`: `standard` needs nothing but one \
                     `accelerate launch` on each machine"
                ));
            }
            Self::NoHostfile { .. } => {
                "give one with `--deepspeed_hostfile`: a line `host slots=N` for each machine; \
                 `--deepspeed_multinode_launcher standard` works without"
            }
            Self::HostfileUnreadable { .. } => {
                "check the path and its permissions; a relative path starts in the working folder"
            }
            Self::DuplicateHost { .. } => "keep one line for the host, with all its slots",
            Self::NoHosts { .. } => "add a line `host slots=N` for each machine",
            Self::BothFilters => {
                "keep one of `--deepspeed_inclusion_filter` and `--deepspeed_exclusion_filter`"
            }
            Self::FilterSyntax { .. } => {
                "join hosts with `@`, as in `worker-0@worker-1:0,2`; hosts with a user name cannot \
                 be named in a filter"
            }
            Self::MachineCount { .. } => {
                "set `--num_machines` to the number of hosts, or choose hosts with \
                 `--deepspeed_inclusion_filter`"
            }
            Self::Uneven { .. } => {
                "set `--num_processes` to a multiple of `--num_machines`, or to the sum of all \
                 slots of the hostfile"
            }
            Self::TooFewSlots { .. } => "ask for fewer processes, or correct the hostfile",
            Self::UnequalSlots { .. } => {
                "choose equally many slots on each host with a filter, or use \
                 `--deepspeed_multinode_launcher pdsh`"
            }
            Self::ChosenSlots { .. } => "use `--deepspeed_multinode_launcher pdsh`",
            Self::NoProcessCount => "set `--num_processes`",
            Self::NoMachineRank => {
                "set `--machine_rank` to the place of this machine in the hostfile, counted from 0"
            }
            Self::NoMasterAddress => {
                "set `--main_process_ip` to the address of the first host, as the others reach it"
            }
            Self::FirstHost { .. } | Self::Ssh { .. } => {
                "make `ssh` to the host work without a password, or set `--main_process_ip`"
            }
            Self::EnvFileUnwritable { .. } => {
                "work in a folder that can be written, or name another file with `DS_ENV_FILE`"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}
