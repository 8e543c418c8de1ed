//! Jobs over the hosts of a DeepSpeed hostfile.
//!
//! Differs from the original, which starts the `deepspeed` command of DeepSpeed's Python package and
//! so needs that package: the commands here are built without it, in the shapes that its runner
//! uses.
//! - `pdsh` starts `accelerate launch` on every host instead of DeepSpeed's own node launcher, so
//!   that whole process trees, logs and failures are handled as on one machine. Hosts may have
//!   different numbers of slots, and any of them.
//! - `openmpi`, `mpich`, `mvapich` and `slurm` start the ranks themselves. The address at which they
//!   meet is passed on; the number of processes and filters work (DeepSpeed refuses them here).
//! - `nossh` is this machine's share of the hostfile, `standard` needs no hostfile: both are work for
//!   the launcher of each machine.

pub(crate) mod export;
mod filter;
mod hostfile;
mod master;
mod mpi_ranks;
pub(crate) mod node;
mod pdsh;
mod pool;
mod slurm;

use std::{
    ffi::OsString,
    num::{NonZeroU16, NonZeroUsize},
    path::{Path, PathBuf},
};

use accelerate_plan::{
    env::{EnvOverlay, MASTER_ADDR, MASTER_PORT},
    launch::Program,
    settings::MultinodeLauncher,
    topology::Rendezvous,
};

use self::{
    export::{EnvFile, Exports},
    node::NodeShare,
    pool::Pool,
};
use super::{
    HostsError, Machine, Outer, Result,
    mpi::{Flavour, Mpi},
    through,
};

/// A job over several machines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    /// How the hosts are reached.
    pub(crate) backend: MultinodeLauncher,
    pub(crate) hostfile: Option<&'a Path>,
    /// Hosts and slots to use, as `host:slot,slot@host`.
    pub(crate) include: Option<&'a str>,
    /// Hosts and slots to leave out.
    pub(crate) exclude: Option<&'a str>,
    pub(crate) num_machines: NonZeroUsize,
    /// Processes of the job; `None` is one for each slot.
    pub(crate) num_processes: Option<NonZeroUsize>,
    /// Number of this machine; only `nossh` looks at it.
    pub(crate) machine_rank: Option<usize>,
    /// Where the processes meet; `None` asks the first host for its address.
    pub(crate) master_addr: Option<&'a str>,
    pub(crate) master_port: NonZeroU16,
    /// Whether the processes stay on the CPU.
    pub(crate) cpu: bool,
    /// What each rank runs, with its interpreter.
    pub(crate) program: &'a Program,
    /// The program and its arguments as the user gave them, for the launcher of each host.
    pub(crate) command: &'a [OsString],
    /// Flags for the launcher of each host, for everything but machines, processes and addresses:
    /// whatever the job was given by flag or file.
    pub(crate) node_flags: &'a [OsString],
    /// The interpreter, if the program is written in Python.
    pub(crate) python: Option<&'a Path>,
    /// What each rank is told: the same for all.
    pub(crate) overlay: &'a EnvOverlay,
}

/// Who starts the processes of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// Our launcher, as in any job: one machine, or one launcher on each.
    Agent,
    /// Our launcher, this share.
    Node(NodeShare),
    /// Another launcher, for all machines.
    Outer(Outer),
}

/// What the backends build from.
struct Job<'a> {
    request: &'a Request<'a>,
    hosts: Hosts,
    /// `None` only for SLURM: the first process of the first host, whoever that is.
    master: Option<Rendezvous>,
    exports: Exports,
}

/// The chosen hosts.
struct Hosts {
    pool: Pool,
    /// Whether they are all that the hostfile has, with all slots.
    is_whole_file: bool,
}

/// Decides who starts the job and builds the command if it is another launcher.
///
/// Reads the hostfile and `.deepspeed_env`, asks an MPI for its version, and the first host for its
/// address if none was given. Nothing is started or written.
///
/// # Errors
/// Whatever is wrong with the hostfile, the filters, the numbers or the installed programs.
pub(crate) fn route(request: &Request<'_>, machine: &Machine<'_>) -> Result<Route> {
    let backend = request.backend;
    if backend == MultinodeLauncher::Standard || request.num_machines == NonZeroUsize::MIN {
        return Ok(Route::Agent);
    }
    let hosts = hosts(request)?;
    if backend == MultinodeLauncher::NoSsh {
        let rank = request.machine_rank.ok_or(HostsError::NoMachineRank)?;
        let master = master(request, &hosts.pool, machine)?.ok_or(HostsError::NoMasterAddress)?;
        return NodeShare::new(&hosts.pool, rank, master).map(Route::Node);
    }
    outer(request, hosts, machine).map(Route::Outer)
}

fn outer(request: &Request<'_>, hosts: Hosts, machine: &Machine<'_>) -> Result<Outer> {
    let backend = request.backend;
    // Before the first host is asked for anything: is there a way to reach it?
    let launcher = launcher(backend, machine)?;
    let mut exports = Exports::collect(machine, request.overlay, request.python)?;
    let (env_file, file_notes) = EnvFile::new(machine, request.overlay, request.python)?;
    let master = master(request, &hosts.pool, machine)?;
    let mut overlay = request.overlay.clone();
    if let Some(master) = &master {
        overlay.set(&MASTER_ADDR, &master.addr);
    }
    overlay.set(&MASTER_PORT, &request.master_port);
    for variable in [MASTER_ADDR.name(), MASTER_PORT.name()] {
        if let Some(value) = overlay.get(variable) {
            exports.set(variable, value);
        }
    }
    let mut notes: Vec<_> = filter_note(request, &hosts.pool).into_iter().collect();
    let job = Job {
        request,
        hosts,
        master,
        exports,
    };
    let arguments = match backend {
        MultinodeLauncher::OpenMpi => mpi_ranks::open_mpi(&job, machine.has_eth0)?,
        MultinodeLauncher::Mpich => mpi_ranks::mpich(&job)?,
        MultinodeLauncher::Mvapich => mpi_ranks::mvapich(&job)?,
        MultinodeLauncher::Slurm => slurm::arguments(&job, machine.environment, &mut notes)?,
        MultinodeLauncher::Pdsh | MultinodeLauncher::NoSsh | MultinodeLauncher::Standard => {
            pdsh::arguments(&job, machine)?
        }
    };
    notes.extend(job.exports.notes);
    notes.extend(file_notes);
    Ok(Outer {
        program: through(&launcher, arguments, request.program),
        overlay,
        notes,
        env_file,
    })
}

/// The program that reaches the hosts.
fn launcher(backend: MultinodeLauncher, machine: &Machine<'_>) -> Result<PathBuf> {
    let expected = match backend {
        MultinodeLauncher::OpenMpi => "Open MPI",
        MultinodeLauncher::Mpich => "MPICH or Intel MPI",
        MultinodeLauncher::Mvapich => "MVAPICH",
        MultinodeLauncher::Slurm => return find(machine, "srun", backend),
        MultinodeLauncher::Pdsh | MultinodeLauncher::NoSsh | MultinodeLauncher::Standard => {
            return find(machine, "pdsh", backend);
        }
    };
    let Mpi { program, flavour } = Mpi::find(machine)?;
    let fits = match backend {
        MultinodeLauncher::OpenMpi => flavour == Flavour::OpenMpi,
        // These two share their process manager and cannot always be told apart.
        _ => flavour != Flavour::OpenMpi,
    };
    match fits {
        true if backend == MultinodeLauncher::OpenMpi => {
            machine.check_root(&program).map(|()| program)
        }
        true => Ok(program),
        false => Err(HostsError::WrongMpi {
            backend,
            expected,
            program,
            found: flavour,
        }),
    }
}

fn find(
    machine: &Machine<'_>,
    program: &'static str,
    backend: MultinodeLauncher,
) -> Result<PathBuf> {
    machine
        .find(&[program])
        .ok_or(HostsError::ProgramMissing { program, backend })
}

/// The hosts that the hostfile, the filters and the numbers leave.
fn hosts(request: &Request<'_>) -> Result<Hosts> {
    let Request {
        backend,
        include,
        exclude,
        ..
    } = *request;
    let is_filtered = include.is_some() || exclude.is_some();
    let Some(path) = request.hostfile else {
        return match backend {
            MultinodeLauncher::Slurm if !is_filtered => Ok(Hosts {
                pool: Pool::default(),
                is_whole_file: true,
            }),
            _ => Err(HostsError::NoHostfile { backend }),
        };
    };
    let file = hostfile::read(path)?;
    let pool = match is_filtered {
        true => filter::apply(file.clone(), include, exclude)?,
        false => by_number(&file, request)?,
    };
    let is_whole_file = pool == file;
    Ok(Hosts {
        pool,
        is_whole_file,
    })
}

/// All slots of all hosts, or equally many on each.
fn by_number(file: &Pool, request: &Request<'_>) -> Result<Pool> {
    let (hosts, machines) = (file.len(), request.num_machines.get());
    if hosts != machines {
        return Err(HostsError::MachineCount { hosts, machines });
    }
    let processes = request
        .num_processes
        .map_or(file.total(), NonZeroUsize::get);
    match processes == file.total() {
        true => Ok(file.clone()),
        false => file.first_slots(evenly(processes, machines)?),
    }
}

fn evenly(processes: usize, machines: usize) -> Result<usize> {
    match processes.checked_rem(machines) {
        Some(0) => Ok(processes / machines),
        _ => Err(HostsError::Uneven {
            processes,
            machines,
        }),
    }
}

/// The filters say how many processes there are, whatever else was said.
fn filter_note(request: &Request<'_>, pool: &Pool) -> Option<String> {
    let asked = request.num_processes?.get();
    let is_filtered = request.include.or(request.exclude).is_some();
    (is_filtered && asked != pool.total()).then(|| {
        format!(
            "the filters choose {} slots, so `num_processes` ({asked}) has no effect",
            pool.total()
        )
    })
}

fn master(request: &Request<'_>, pool: &Pool, machine: &Machine<'_>) -> Result<Option<Rendezvous>> {
    let addr = match request.master_addr {
        Some(addr) => addr.to_owned(),
        None if request.backend == MultinodeLauncher::Slurm => return Ok(None),
        None => master::first_address(pool, request.backend, machine)?,
    };
    Ok(Some(Rendezvous {
        addr,
        port: request.master_port,
    }))
}

#[cfg(test)]
mod tests;
