//! What of a plan this version can carry out.

use accelerate_plan::parallel::{ParallelPlan, Sharded, Storage};
use accelerate_torch::meta;
use tch::Device;

use crate::optim::Optimizer;
use crate::{Error, Result};

/// Whether an optimizer can update parts of parameters.
///
/// # Errors
/// [`Error::Argument`] for one that looks at whole parameters, or one that has made steps.
pub(crate) fn check_optimizer(optimizer: &dyn Optimizer) -> Result<()> {
    let found = if !optimizer.is_elementwise() {
        "looks at whole parameters, of which each rank has only a part; use one like `AdamW`, \
         `Sgd` or `RmsProp`, or train without shards"
    } else if optimizer.learning_rates().step_count() > 0 {
        "has made steps with whole parameters; prepare it before the first one"
    } else if has_parameter_on_meta(optimizer)? {
        "has parameters without memory; prepare the model first, and make the optimizer of the \
         parameters that it has then"
    } else {
        return Ok(());
    };
    Err(Error::Argument {
        operation: "sharding",
        expected: "a new optimizer that updates each number by itself".to_owned(),
        found: format!("`{}`, which {found}", optimizer.name()),
    })
}

fn has_parameter_on_meta(optimizer: &dyn Optimizer) -> Result<bool> {
    for parameter in optimizer.groups().iter() {
        if meta::is_meta(parameter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// # Errors
/// [`Error::Argument`] with everything that a plan asks for and cannot get.
pub(super) fn check(plan: &ParallelPlan, device: Device) -> Result<()> {
    let mut missing = Vec::new();
    let mut refuse = |is_asked_for: bool, what: &str| {
        if is_asked_for {
            missing.push(what.to_owned());
        }
    };
    refuse(plan.sharded == Sharded::Nothing, "no shards at all");
    let offload = &plan.offload;
    for (what, storage) in [
        ("parameters", &offload.parameters),
        ("gradients", &offload.gradients),
        ("optimizer state", &offload.optimizer_state),
    ] {
        match storage {
            Storage::Disk { .. } => refuse(true, &format!("{what} on disk")),
            // Where the device is the CPU, everything is in its memory anyway.
            Storage::Cpu { .. } => refuse(device != Device::Cpu, &format!("{what} on the CPU")),
            Storage::Device => {}
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::Argument {
        operation: "sharding",
        expected: "a plan that this version can carry out".to_owned(),
        found: format!("one that asks for {}", missing.join(", ")),
    })
}
