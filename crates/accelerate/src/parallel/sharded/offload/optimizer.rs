//! The state of an optimizer, where the plan says that it is on disk.

use accelerate_plan::parallel::{ParallelPlan, Storage};

use crate::Result;
use crate::checkpoint::together;
use crate::offload::DiskFolder;
use crate::optim::Optimizer;
use crate::state::PartialState;

/// Lets an optimizer keep its state where the plan says it. State in CPU memory is with parameters
/// there, which is where the shards of offloaded ones are.
///
/// # Collective
/// Every rank calls this, once all models that are prepared with the optimizer are: an error of one
/// rank is one of all.
///
/// # Errors
/// An optimizer whose state cannot be on disk; a folder that cannot be written to, or has no room.
pub(crate) fn offload_optimizer(
    plan: &ParallelPlan,
    optimizer: &mut dyn Optimizer,
    state: &PartialState,
) -> Result<()> {
    let Storage::Disk { folder } = &plan.offload.optimizer_state else {
        return Ok(());
    };
    let folder = DiskFolder::new(folder, state.process_index(), &plan.offload.disk);
    let kept = folder.and_then(|folder| optimizer.keep_state_on_disk(&folder));
    together(state, kept)
}
