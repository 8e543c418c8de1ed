//! `mpirun` with a file of hosts, as the config section `mpirun_config` asks for it.
//!
//! MPI starts the ranks and numbers them; a process finds its place in the variables of its MPI.
//!
//! Differs from the original in three ways. Open MPI passes no variables on to other machines, so
//! the variables of the job are named with `-x`; the others pass on everything themselves. Numbers
//! that do not divide are rounded up per machine, so that all processes fit. The command is not
//! tried where Open MPI would refuse to serve root.

use std::{ffi::OsString, num::NonZeroUsize, path::Path};

use accelerate_plan::{env::EnvOverlay, launch::Program};

use super::{
    HostsError, Machine, Outer, Result,
    mpi::{Flavour, Mpi},
    through, words,
};

/// A job for `mpirun`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    /// File of hosts, in the form that the installed MPI reads.
    pub(crate) hostfile: &'a Path,
    /// Processes of the job; `None` leaves the number to MPI, with one process per machine.
    pub(crate) num_processes: Option<NonZeroUsize>,
    pub(crate) num_machines: NonZeroUsize,
    /// What each rank runs.
    pub(crate) program: &'a Program,
    /// What each rank is told: the same for all.
    pub(crate) overlay: &'a EnvOverlay,
}

/// The command that starts the job.
///
/// # Errors
/// [`HostsError::HostfileUnreadable`], [`HostsError::MpiMissing`], [`HostsError::VersionUnknown`],
/// [`HostsError::RootRefused`].
pub(crate) fn command(request: &Request<'_>, machine: &Machine<'_>) -> Result<Outer> {
    let Request {
        hostfile,
        num_processes,
        num_machines,
        program,
        overlay,
    } = *request;
    std::fs::File::open(hostfile).map_err(|source| HostsError::HostfileUnreadable {
        path: hostfile.to_owned(),
        source,
    })?;
    let mpi = Mpi::find(machine)?;
    let is_open_mpi = mpi.flavour == Flavour::OpenMpi;
    if is_open_mpi {
        machine.check_root(&mpi.program)?;
    }
    let (hosts_flag, per_node_flag) = match is_open_mpi {
        true => ("--hostfile", "--npernode"),
        false => ("-f", "-ppn"),
    };
    let per_node = num_processes.map_or(1, |all| all.get().div_ceil(num_machines.get()));
    let mut arguments: Vec<OsString> = vec![hosts_flag.into(), hostfile.into()];
    arguments.extend([per_node_flag.into(), per_node.to_string().into()]);
    if let Some(all) = num_processes {
        arguments.extend(["-n".into(), all.to_string().into()]);
    }
    if is_open_mpi {
        arguments.extend(["--bind-to".into(), "socket".into()]);
        let names = overlay.iter().map(|(name, _)| name);
        arguments.extend(names.flat_map(|name| ["-x".into(), name.into()]));
    }
    arguments.extend(words(program));
    Ok(Outer {
        program: through(&mpi.program, arguments, program),
        overlay: overlay.clone(),
        notes: vec![format!(
            "`{}` starts the processes ({})",
            mpi.program.display(),
            mpi.flavour
        )],
        env_file: None,
    })
}

#[cfg(test)]
mod tests;
