//! Second shards over the ranks of one machine (hpZ).

use accelerate_torch::{Work, storage};
use tch::{Device, Kind, Tensor};

use super::flat::{bytes, length, part};
use super::groups::Node;
use super::layout::Layout;
use super::pool::Pool;
use crate::Result;

/// What this rank keeps of a unit between its forward and its backward pass, in the type in which it
/// computes: its part of the whole among the ranks of one machine, so that the second gather stays on
/// the machine.
///
/// # Source
/// `zero_hpz_partition_size` of DeepSpeed's ZeRO++. Differs: it has memory between the two passes
/// only, not from one step to the next.
pub(super) struct Second {
    /// `[whole / ranks of the machine]`
    part: Tensor,
    is_filled: bool,
}

impl Second {
    pub(super) fn new(layout: &Layout, kind: Kind, node: &Node, at: Device) -> Result<Self> {
        let count = layout.whole() / node.gather.size().max(1);
        let part = Tensor::f_empty([length(count)], (kind, at))?;
        storage::release(&part)?;
        Ok(Self {
            part,
            is_filled: false,
        })
    }

    /// Whether there is something to gather from.
    pub(super) fn is_filled(&self) -> bool {
        self.is_filled
    }

    /// Takes this rank's part of what is whole.
    pub(super) fn keep(&mut self, whole: &Tensor, node: &Node, pool: &mut Pool) -> Result<()> {
        let count = self.part.numel();
        pool.fill(&self.part, bytes(count, self.part.f_kind()?))?;
        let own = part(whole, node.gather.rank() * count, count)?;
        tch::no_grad(|| self.part.f_copy_(&own))?;
        self.is_filled = true;
        Ok(())
    }

    /// Starts to make `whole` of the parts on this machine.
    ///
    /// # Collective
    /// The ranks of the machine call this in one order for all storages.
    pub(super) fn start_gather(&self, whole: &Tensor, node: &Node) -> Result<Work> {
        Ok(node.gather.exchange_all_gather_async(whole, &self.part)?)
    }

    /// Gives the memory back: the pass is over.
    pub(super) fn forget(&mut self, pool: &mut Pool) -> Result<()> {
        self.is_filled = false;
        pool.drain(&self.part)
    }
}
