//! The sharding plan of a config file, and what it takes on each process.

use std::num::NonZeroUsize;

use accelerate_plan::{
    launch::Strategy,
    parallel::{JobFacts, ShardingSettings, WrapPolicy},
    settings::{ConfigFile, MIXED_PRECISION, NUM_MACHINES, NUM_PROCESSES, Settings, Sourced},
};
use serde::Serialize;

use super::{
    args::EstimateArgs,
    error::{EstimateError, Result},
    training::{Inventory, Optimizer},
};

/// A plan and its bytes on one process.
#[derive(Debug, Serialize)]
pub(crate) struct Configured {
    pub(crate) config_file: String,
    pub(crate) plan: Vec<String>,
    pub(crate) num_processes: u64,
    pub(crate) num_machines: u64,
    pub(crate) weights_bytes: u64,
    pub(crate) copies_bytes: u64,
    pub(crate) gradients_bytes: u64,
    pub(crate) optimizer_bytes: u64,
    pub(crate) per_process_bytes: u64,
    pub(crate) device_bytes: u64,
    pub(crate) cpu_bytes: u64,
    pub(crate) disk_bytes: u64,
}

/// The plan that a config file asks for, and what it takes; [`None`] if no file is named. The flags
/// for processes, machines and precision come before the file.
///
/// # Errors
/// [`EstimateError::File`], [`EstimateError::Plan`], [`EstimateError::NotSharded`].
pub(crate) fn configured(
    args: &EstimateArgs,
    inventory: &Inventory,
    optimizer: Optimizer,
) -> Result<Option<Configured>> {
    let Some(path) = &args.config_file else {
        return Ok(None);
    };
    let file = ConfigFile::read(path).map_err(EstimateError::File)?;
    let settings = Settings::resolve([file.layer]);
    let plan = |error: accelerate_plan::Error| EstimateError::Plan(error.into());
    let strategy = Strategy::of(&settings).map_err(plan)?;
    let (facts, num_machines) = facts(args, &settings)?;
    let told = ShardingSettings::of_launch(&settings, strategy, &facts);
    let Some(told) = told.map_err(EstimateError::Plan)? else {
        return Err(EstimateError::NotSharded { path: path.clone() });
    };
    let preview = told.preview(&facts).map_err(EstimateError::Plan)?;
    let has_units = preview.plan.wrap != WrapPolicy::Root;
    let sizes = inventory.sizes(optimizer, has_units);
    let memory = preview.plan.rank_memory(&sizes, 0);
    let placed = preview.plan.placed_memory(&sizes, 0);
    Ok(Some(Configured {
        config_file: path.display().to_string(),
        plan: preview.to_string().lines().map(str::to_owned).collect(),
        num_processes: facts.world_size.get() as u64,
        num_machines,
        weights_bytes: memory.weights,
        copies_bytes: memory.copies,
        gradients_bytes: memory.gradients,
        optimizer_bytes: memory.optimizer,
        per_process_bytes: memory.total(),
        device_bytes: placed.device,
        cpu_bytes: placed.cpu,
        disk_bytes: placed.disk,
    }))
}

/// The job that the flags and the file tell of, and its machines.
fn facts(args: &EstimateArgs, settings: &Settings) -> Result<(JobFacts, u64)> {
    let of_file = |count: Option<NonZeroUsize>| count.map_or(1, |count| count.get() as u64);
    let processes = args.num_processes.map(u64::from);
    let num_processes = processes.unwrap_or_else(|| of_file(settings.get(&NUM_PROCESSES)));
    let machines = args.num_machines.map(u64::from);
    let num_machines = machines.unwrap_or_else(|| of_file(settings.get(&NUM_MACHINES)));
    if !num_processes.is_multiple_of(num_machines) {
        return Err(EstimateError::UnevenMachines {
            num_processes,
            num_machines,
        });
    }
    let size = |count: u64| {
        let count = usize::try_from(count).ok().and_then(NonZeroUsize::new);
        count.unwrap_or(NonZeroUsize::MIN)
    };
    let of_file = settings.sourced(&MIXED_PRECISION);
    let of_file = of_file.unwrap_or_else(|| Sourced::default_value(Default::default()));
    let facts = JobFacts {
        world_size: size(num_processes),
        local_world_size: size(num_processes / num_machines),
        mixed_precision: of_file,
    };
    let facts = match args.mixed_precision {
        Some(precision) => facts.with_precision(precision),
        None => facts,
    };
    Ok((facts, num_machines))
}
