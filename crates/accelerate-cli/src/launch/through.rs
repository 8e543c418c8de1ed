//! Whether another launcher starts the processes, and how.

use std::{
    ffi::OsString,
    num::{NonZeroU16, NonZeroUsize},
    path::PathBuf,
};

use accelerate_plan::{
    config::{self, Value, inline_json},
    env::{CCL_WORKER_COUNT, EnvOverlay, Environment, MASTER_ADDR, MASTER_PORT, OMP_NUM_THREADS},
    launch::{Layout, Strategy, Threads},
    settings::{
        DEEPSPEED_EXCLUSION_FILTER, DEEPSPEED_HOSTFILE, DEEPSPEED_INCLUSION_FILTER,
        DEEPSPEED_MULTINODE_LAUNCHER, Flag, Key, KeyEntry, MAIN_PROCESS_IP, MAIN_PROCESS_PORT,
        MPIRUN_CCL, MPIRUN_HOSTFILE, MultinodeLauncher, Settings,
    },
    topology::{LOOPBACK, Rendezvous},
};

use super::{
    hosts::{
        Machine,
        deepspeed::{self, Route, node::NodeShare},
        mpirun,
    },
    program::Located,
};
use crate::error::{Error, Result};

/// Settings that each machine is told in another way.
const NOT_FOR_NODES: [&str; 12] = [
    "num_processes",
    "num_processes_per_machine",
    "num_machines",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
    "deepspeed_hostfile",
    "deepspeed_inclusion_filter",
    "deepspeed_exclusion_filter",
    "deepspeed_multinode_launcher",
    "mpirun_hostfile",
    "cpu",
];

/// What the decision needs to know.
pub(super) struct Question<'a> {
    pub(super) settings: &'a Settings,
    pub(super) strategy: Strategy,
    pub(super) layout: &'a Layout,
    pub(super) cpu: bool,
    pub(super) located: &'a Located,
    /// The program and its arguments as the user typed them.
    pub(super) command: &'a [OsString],
    pub(super) shared: &'a EnvOverlay,
    pub(super) threads: Threads,
    /// A free port of this machine, for ranks that MPI starts on it.
    pub(super) port: Option<NonZeroU16>,
    pub(super) env: &'a Environment,
}

/// Who starts the processes.
///
/// # Errors
/// If the other launcher is missing, or its file of machines cannot be used.
pub(super) fn route(question: &Question<'_>) -> Result<Route> {
    let machine = || {
        Machine::here(question.env).map_err(|source| Error::System {
            doing: "find the working folder",
            source,
        })
    };
    if let Some(hostfile) = text(question.settings, &MPIRUN_HOSTFILE) {
        let request = mpirun::Request {
            hostfile: &expand_home(&hostfile, question.env)?,
            num_processes: question.layout.total,
            num_machines: question.layout.num_machines,
            program: &question.located.program,
            overlay: &overlay_of_ranks(question),
        };
        return Ok(Route::Outer(mpirun::command(&request, &machine()?)?));
    }
    if let Some(share) = share_of_other_launcher(question)? {
        return Ok(Route::Node(share));
    }
    let launcher = question.settings.get(&DEEPSPEED_MULTINODE_LAUNCHER);
    let hostfile = text(question.settings, &DEEPSPEED_HOSTFILE);
    if question.strategy != Strategy::DeepSpeed || launcher.is_none() && hostfile.is_none() {
        return Ok(Route::Agent);
    }
    let launcher = launcher.unwrap_or(MultinodeLauncher::Pdsh);
    deepspeed_route(question, launcher, hostfile, &machine()?)
}

/// What ranks are told that MPI starts and numbers: where they meet, too. On several machines only
/// the user knows that; a program that leaves it to MPI does not need it.
fn overlay_of_ranks(question: &Question<'_>) -> EnvOverlay {
    let Question {
        settings, layout, ..
    } = question;
    let mut overlay = question.shared.clone();
    let is_one_machine = layout.num_machines == NonZeroUsize::MIN;
    let address = text(settings, &MAIN_PROCESS_IP);
    if let Some(address) = address.or(is_one_machine.then(|| LOOPBACK.to_owned())) {
        let port = settings.get(&MAIN_PROCESS_PORT).and_then(NonZeroU16::new);
        let port = port.or(question.port);
        overlay.set(&MASTER_ADDR, &address);
        overlay.set(&MASTER_PORT, &port.unwrap_or(Rendezvous::default().port));
    }
    if let Some(threads) = question.threads.to_set() {
        overlay.set(&OMP_NUM_THREADS, &threads);
    }
    match settings.given(&MPIRUN_CCL) {
        Some(workers) if !is_one_machine => overlay.set(&CCL_WORKER_COUNT, &workers.value),
        _ => {}
    }
    overlay
}

/// The share of this machine, if the launcher of another one has started this one.
fn share_of_other_launcher(question: &Question<'_>) -> Result<Option<NodeShare>> {
    let Some(rank) = question.layout.machine_rank else {
        return Ok(None);
    };
    let default = Rendezvous::default();
    let port = question
        .settings
        .get(&MAIN_PROCESS_PORT)
        .and_then(NonZeroU16::new);
    let master = Rendezvous {
        addr: text(question.settings, &MAIN_PROCESS_IP).unwrap_or(default.addr),
        port: port.unwrap_or(default.port),
    };
    Ok(NodeShare::from_environment(question.env, rank, master)?)
}

fn deepspeed_route(
    question: &Question<'_>,
    launcher: MultinodeLauncher,
    hostfile: Option<String>,
    machine: &Machine<'_>,
) -> Result<Route> {
    let settings = question.settings;
    let hostfile = hostfile.map(|path| expand_home(&path, question.env));
    let hostfile = hostfile.transpose()?;
    let include = text(settings, &DEEPSPEED_INCLUSION_FILTER);
    let exclude = text(settings, &DEEPSPEED_EXCLUSION_FILTER);
    let address = text(settings, &MAIN_PROCESS_IP);
    let port = settings.get(&MAIN_PROCESS_PORT).and_then(NonZeroU16::new);
    let request = deepspeed::Request {
        backend: launcher,
        hostfile: hostfile.as_deref(),
        include: include.as_deref(),
        exclude: exclude.as_deref(),
        num_machines: question.layout.num_machines,
        num_processes: question.layout.total,
        machine_rank: question.layout.machine_rank,
        master_addr: address.as_deref(),
        master_port: port.unwrap_or(Rendezvous::default().port),
        cpu: question.cpu,
        program: &question.located.program,
        command: question.command,
        node_flags: &node_flags(settings),
        python: question.located.python.as_deref(),
        overlay: question.shared,
    };
    Ok(deepspeed::route(&request, machine)?)
}

/// The text of a setting; an empty one says nothing.
fn text(settings: &Settings, key: &Key<String>) -> Option<String> {
    settings.get(key).filter(|text| !text.is_empty())
}

/// The path below the home folder, where `~` stands for that; as it is where no home is known.
fn expand_home(path: &str, env: &Environment) -> Result<PathBuf> {
    Ok(config::expand_home(path, env)?.unwrap_or_else(|| path.into()))
}

/// Everything that was chosen, as flags for the launcher of each machine.
fn node_flags(settings: &Settings) -> Vec<OsString> {
    let chosen = settings.iter().filter(|(entry, _, origin)| {
        origin.is_given()
            && entry.flag != Flag::FileOnly
            && !entry.is_secret
            && !NOT_FOR_NODES.contains(&entry.name)
    });
    chosen
        .filter_map(|(entry, value, _)| flag(entry, &value?))
        .flatten()
        .collect()
}

fn flag(entry: &KeyEntry, value: &Value) -> Option<Vec<OsString>> {
    let name = format!("--{}", entry.name);
    match (entry.flag, value) {
        (Flag::Switch, Value::Bool(true)) => Some(vec![name.into()]),
        (Flag::Switch, _) => None,
        (_, Value::List(items)) => {
            let one = |item: &Value| [OsString::from(&name), inline_json(item).into()];
            Some(items.iter().flat_map(one).collect())
        }
        _ => Some(vec![name.into(), inline_json(value).into()]),
    }
}
