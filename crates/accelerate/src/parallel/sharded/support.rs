//! What of a plan this version can carry out.

use accelerate_plan::parallel::{ParallelPlan, Sharded, Storage};
use accelerate_torch::meta;

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

/// Whether a process by itself trains by a plan as ranks do, each with its shard: so do parameters that
/// are on disk, which are in memory a unit at a time.
pub(crate) fn shards_alone(plan: &ParallelPlan) -> bool {
    let is_alone = plan.mesh.world_size().get() == 1;
    let is_on_disk = matches!(plan.offload.parameters, Storage::Disk { .. });
    is_alone && is_on_disk && plan.sharded > Sharded::Nothing
}

/// # Errors
/// [`Error::Argument`] for a plan that shards nothing.
pub(super) fn check(plan: &ParallelPlan) -> Result<()> {
    if plan.sharded > Sharded::Nothing {
        return Ok(());
    }
    Err(Error::Argument {
        operation: "sharding",
        expected: "a plan that this version can carry out".to_owned(),
        found: "one that asks for no shards at all".to_owned(),
    })
}
