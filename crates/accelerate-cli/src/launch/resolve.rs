//! From what was typed to what will run.

use std::{fs, num::NonZeroUsize, path::PathBuf, thread, time::Duration};

use accelerate_plan::{
    env::{CUDA_VISIBLE_DEVICES, Environment, OMP_NUM_THREADS},
    launch::{LaunchPlan, Threads},
    topology::{LOOPBACK, Rendezvous},
};

use super::{
    port::Reservation,
    program::{self, Kind},
};
use crate::{
    args::LaunchArgs,
    error::{Error, Result},
};

/// Everything that is decided before the first process starts.
pub(crate) struct Resolved {
    pub(crate) plan: LaunchPlan,
    pub(crate) handling: Handling,
    /// Keeps the port of the plan away from other jobs while this lives.
    pub(crate) reservation: Option<Reservation>,
    /// Values that were chosen rather than given, one line each.
    pub(crate) notes: Vec<String>,
}

/// How the launcher treats the processes, beyond what they are told.
#[derive(Debug, Clone)]
pub(crate) struct Handling {
    /// Time between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
    /// Whether lines of several processes carry `node:rank`.
    pub(crate) prefix: bool,
    /// Local ranks whose output is shown; `None` shows all.
    pub(crate) shown: Option<Vec<usize>>,
    /// Folder for log files.
    pub(crate) log_dir: Option<PathBuf>,
    /// Whether nothing is said while processes end.
    pub(crate) quiet: bool,
}

pub(crate) fn resolve(args: &LaunchArgs, env: &Environment) -> Result<Resolved> {
    let mut notes = Vec::new();
    let num_processes = processes(args, env, &mut notes)?;
    let handling = handling(args, num_processes)?;
    let piped = num_processes > NonZeroUsize::MIN;
    let program = program::locate(&args.command, kind(args)?, env, piped)?;
    let threads = threads(args, env, num_processes, &mut notes)?;
    let reservation = match piped {
        true => Some(Reservation::new(args.main_process_port.unwrap_or(0))?),
        false => None,
    };
    let plan = LaunchPlan {
        program,
        num_processes,
        num_nodes: NonZeroUsize::MIN,
        node_rank: 0,
        rendezvous: rendezvous(args, reservation.as_ref()),
        cpu: args.cpu,
        mixed_precision: args.mixed_precision.unwrap_or_default(),
        gradient_accumulation_steps: args.gradient_accumulation_steps,
        debug: args.debug,
        threads,
    };
    Ok(Resolved {
        plan,
        handling,
        reservation,
        notes,
    })
}

fn handling(args: &LaunchArgs, num_processes: NonZeroUsize) -> Result<Handling> {
    let num_processes = num_processes.get();
    let out_of_range = args
        .local_ranks_filter
        .iter()
        .flatten()
        .copied()
        .find(|rank| *rank >= num_processes);
    if let Some(rank) = out_of_range {
        return Err(Error::FilterOutOfRange {
            rank,
            num_processes,
        });
    }
    Ok(Handling {
        grace: args.grace_period,
        prefix: !args.no_prefix && num_processes > 1,
        shown: args.local_ranks_filter.clone(),
        log_dir: args.log_dir.clone(),
        quiet: args.quiet,
    })
}

fn kind(args: &LaunchArgs) -> Result<Kind> {
    match (args.module, args.no_python) {
        (true, true) => Err(Error::ModuleWithoutPython),
        (true, false) => Ok(Kind::PythonModule),
        (false, true) => Ok(Kind::AsIs),
        (false, false) => Ok(Kind::Recognise),
    }
}

fn processes(
    args: &LaunchArgs,
    env: &Environment,
    notes: &mut Vec<String>,
) -> Result<NonZeroUsize> {
    if let Some(given) = args.num_processes {
        return Ok(given);
    }
    let devices = if args.cpu { 0 } else { nvidia_devices(env)? };
    let (count, why) = match NonZeroUsize::new(devices) {
        Some(devices) => (devices, "one for each NVIDIA device"),
        None if args.cpu => (NonZeroUsize::MIN, "with `--cpu`, ask for more by number"),
        None => (NonZeroUsize::MIN, "no NVIDIA device found"),
    };
    notes.push(format!("`--num_processes` was set to `{count}` ({why})"));
    Ok(count)
}

/// NVIDIA devices that this process may use, without loading a driver.
fn nvidia_devices(env: &Environment) -> Result<usize> {
    if let Some(visible) = env.get(&CUDA_VISIBLE_DEVICES)? {
        let ids = visible.split(',').map(str::trim);
        return Ok(ids.take_while(|id| !id.is_empty() && *id != "-1").count());
    }
    let Ok(devices) = fs::read_dir("/dev") else {
        return Ok(0);
    };
    let is_device = |name: &str| {
        name.strip_prefix("nvidia")
            .is_some_and(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()))
    };
    Ok(devices
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_device))
        .count())
}

fn threads(
    args: &LaunchArgs,
    env: &Environment,
    processes: NonZeroUsize,
    notes: &mut Vec<String>,
) -> Result<Threads> {
    if let Some(given) = args.num_cpu_threads_per_process {
        return Ok(Threads::Flag(given));
    }
    if env.get(&OMP_NUM_THREADS)?.is_some() {
        return Ok(Threads::Inherited);
    }
    // Respects the CPU affinity of this process and the limits of its container.
    let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let threads = Threads::share(cores, processes);
    if let Threads::Shared { per_process, cores } = threads {
        notes.push(format!(
            "`--num_cpu_threads_per_process` was set to `{per_process}` (usable cores: {cores}, \
             processes: {processes}; `OMP_NUM_THREADS` changes it too)"
        ));
    }
    Ok(threads)
}

fn rendezvous(args: &LaunchArgs, reservation: Option<&Reservation>) -> Rendezvous {
    let port = reservation.map_or_else(|| Rendezvous::default().port, Reservation::port);
    let addr = args
        .main_process_ip
        .clone()
        .unwrap_or_else(|| LOOPBACK.to_owned());
    Rendezvous { addr, port }
}
