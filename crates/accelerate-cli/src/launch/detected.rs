//! What stands in the place of numbers that nobody gave, and why.

use std::num::NonZeroUsize;

use accelerate_plan::{
    Result,
    config::{Value, inline_json},
    env::Environment,
    launch::{Found, Layout, Threads, cpu},
    settings::{
        Given, NUM_CPU_THREADS_PER_PROCESS, NUM_PROCESSES, NUM_PROCESSES_PER_MACHINE, Origin,
        Settings,
    },
};

use super::step::Step;
use crate::{
    configuration::{Configuration, ConfigurationError},
    machine::{Cores, Devices, Root},
};

/// The settings in force, with what a launch on this machine would put in the place of those that
/// nobody gave. Numbers that exclude each other are left as they are: it is the launch that refuses
/// them.
///
/// # Errors
/// If a variable cannot be read, or what cluster managers say.
pub(crate) fn with_detected(
    configuration: &Configuration,
    env: &Environment,
) -> Result<Settings, ConfigurationError> {
    let step = Step::read(env)?;
    let mut settings = configuration.settings(step.detected()?);
    let devices = Devices::read(&Root::machine(), env)?.count();
    // As above: what excludes each other is told by the launch.
    let _ = step.settle(&mut settings);
    let layout = match &step {
        Step::EachTaskIsARank(cluster) => super::step::one_of_many(&settings, cluster).ok(),
        _ => Layout::of(&settings, cpu(&settings).value, Found { devices }).ok(),
    };
    if let Some(layout) = layout {
        note_processes(&mut settings, &step, &layout);
        let threads = Cores::read(&Root::machine()).share(env, layout.local)?;
        if settings.given(&NUM_CPU_THREADS_PER_PROCESS).is_none() {
            let processes = step.tasks_here().unwrap_or(layout.local);
            note_threads(&mut settings, &threads, processes);
        }
    }
    Ok(settings)
}

/// Keeps how many processes there are, if the machine or a manager says so. A manager has the last
/// word: what a file says is for jobs that it did not start.
pub(super) fn note_processes(settings: &mut Settings, step: &Step, layout: &Layout) {
    let (name, count, origin) = match (step, &layout.origin) {
        (Step::EachTaskIsARank(cluster), _) => {
            let world = cluster.world_size();
            let origin = Origin::Detected(format!("`{}` says so", world.variable));
            (NUM_PROCESSES.name(), world.value, origin)
        }
        (_, origin @ Origin::Detected(_)) => {
            let name = match layout.num_machines.get() {
                1 => NUM_PROCESSES.name(),
                _ => NUM_PROCESSES_PER_MACHINE.name(),
            };
            (name, layout.local, origin.clone())
        }
        _ => return,
    };
    put(settings, name, count, origin);
}

/// Keeps how the cores are shared among the processes, if nobody gave the number of threads.
pub(super) fn note_threads(settings: &mut Settings, threads: &Threads, processes: NonZeroUsize) {
    if let Threads::Shared { per_process, cores } = threads {
        let why = format!(
            "usable cores: {cores}, processes: {processes}; `OMP_NUM_THREADS` changes it too"
        );
        let origin = Origin::Detected(why);
        put(
            settings,
            NUM_CPU_THREADS_PER_PROCESS.name(),
            *per_process,
            origin,
        );
    }
}

/// Every value that was found out, one line each.
pub(super) fn lines(settings: &Settings) -> Vec<String> {
    let found = settings
        .iter()
        .filter_map(|(entry, value, origin)| match origin {
            Origin::Detected(why) => Some((entry.name, value?, why)),
            _ => None,
        });
    found
        .map(|(name, value, why)| {
            format!("`--{name}` was set to `{}` ({why})", inline_json(&value))
        })
        .collect()
}

fn put(settings: &mut Settings, name: &'static str, count: NonZeroUsize, origin: Origin) {
    let value = Value::Int(i64::try_from(count.get()).unwrap_or(i64::MAX));
    settings.put(name, Given { value, origin });
}
