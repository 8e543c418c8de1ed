//! One unit, and when units are gathered.

use accelerate_plan::parallel::{AfterForward, Dialect, NoSync, ParallelPlan, Sharded};
use accelerate_plan::settings::BackwardPrefetch;
use tch::Kind;

use super::flat::Flat;
use super::gradients::Divisors;
use crate::{Error, Result};

/// Parameters that are gathered together.
pub(super) struct Unit {
    /// The dotted name of its module; empty for the root.
    pub(super) name: String,
    pub(super) flats: Vec<Flat>,
    /// Calls whose backward pass has begun and is not over.
    pub(super) active: Vec<u64>,
    /// Whether all of its gradients of this backward pass are there.
    pub(super) is_done: bool,
    /// Whether it is so small that it stays whole from the forward pass to the backward pass.
    pub(super) is_kept: bool,
}

impl Unit {
    pub(super) fn new(name: String, flats: Vec<Flat>, keep_up_to: u64) -> Self {
        let mut members = flats.iter().flat_map(|flat| &flat.members);
        Self {
            is_kept: members.all(|member| member.len() <= keep_up_to),
            name,
            flats,
            active: Vec::new(),
            is_done: false,
        }
    }

    /// Whether every trained parameter has its gradient.
    pub(super) fn is_complete(&self) -> bool {
        let mut trained = self.flats.iter().filter_map(|flat| flat.gradients.as_ref());
        trained.all(|gradients| gradients.are_complete())
    }

    /// Whether a trained parameter has a whole gradient that is still to be added up over ranks.
    pub(super) fn has_whole_gradients(&self) -> Result<bool> {
        for flat in &self.flats {
            if flat.has_whole_gradients()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) fn has_trained(&self) -> bool {
        self.flats.iter().any(|flat| flat.gradients.is_some())
    }

    pub(super) fn has_frozen(&self) -> bool {
        self.flats.iter().any(|flat| flat.gradients.is_none())
    }
}

/// When units are gathered, dropped and reduced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// Whether parameters are dropped between the forward and the backward pass.
    pub(super) drops_after_forward: bool,
    pub(super) keeps_root: bool,
    pub(super) prefetches_forward: bool,
    pub(super) prefetch_backward: BackwardPrefetch,
    /// Whether gradients are reduced also where a pass does not synchronise.
    pub(super) reduces_always: bool,
}

impl Timing {
    pub(super) fn of(plan: &ParallelPlan) -> Self {
        let drops = plan.sharded == Sharded::Parameters
            && matches!(
                plan.after_forward,
                AfterForward::Release | AfterForward::ReleaseTo(_)
            );
        Self {
            drops_after_forward: drops,
            keeps_root: plan.keeps_root,
            // Without the switch of FSDP a device that runs behind its queue overlaps gathers anyway.
            prefetches_forward: plan.prefetch.forward || plan.dialect != Dialect::Plain,
            prefetch_backward: plan.prefetch.backward,
            reduces_always: plan.reduction.no_sync == NoSync::Shards,
        }
    }
}

/// The unit at a place that hooks know.
pub(super) fn unit_at(units: &mut [Unit], unit: usize) -> Result<&mut Unit> {
    let count = units.len();
    units.get_mut(unit).ok_or_else(|| Error::Argument {
        operation: "sharding",
        expected: format!("one of {count} units"),
        found: format!("number {unit}"),
    })
}

/// What gradients of a storage are divided by.
pub(super) fn divisors(plan: &ParallelPlan, ranks: usize, reduce: Kind) -> Divisors {
    let (before, after) = plan.reduction.average.factors(ranks, reduce == Kind::Half);
    Divisors { before, after }
}
