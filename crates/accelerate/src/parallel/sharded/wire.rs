//! Parameters and gradients as small integers on their way between ranks.

use accelerate_torch::{ProcessGroup, Work, storage};
use tch::{Device, Kind, Tensor};

use super::blockwise::Blockwise;
use super::flat::length;
use super::groups::Groups;
use super::layout::Layout;
use super::pool::Pool;
use crate::Result;

/// Parameters that are gathered as integers (qwZ).
pub(super) struct WeightWire {
    code: Blockwise,
    ranks: usize,
    shard: usize,
    /// `[ranks * bytes]`; has memory only while a gather runs.
    received: Tensor,
    is_under_way: bool,
}

impl WeightWire {
    pub(super) fn new(code: Blockwise, layout: &Layout, ranks: usize, at: Device) -> Result<Self> {
        Ok(Self {
            code,
            ranks,
            shard: layout.shard(),
            received: room(ranks * code.bytes(layout.shard()), at)?,
            is_under_way: false,
        })
    }

    /// Whether a gather was started and neither finished nor forgotten.
    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Starts to gather the shards of all ranks.
    ///
    /// # Collective
    /// The ranks of `group` call this in one order for all storages.
    pub(super) fn start(
        &mut self,
        shard: &Tensor,
        group: &ProcessGroup,
        pool: &mut Pool,
    ) -> Result<Work> {
        let sent = self.code.encode(&shard.f_view([1, -1])?)?.f_view([-1])?;
        pool.fill(&self.received, self.received.numel())?;
        let work = group.exchange_all_gather_async(&self.received, &sent)?;
        self.is_under_way = true;
        Ok(work)
    }

    /// Writes what has come into the whole. All ranks get the same numbers, also of their own.
    pub(super) fn finish(&mut self, whole: &Tensor, pool: &mut Pool) -> Result<()> {
        let ranks = length(self.ranks);
        let rows = self.received.f_view([ranks, -1])?;
        let numbers = self.code.decode(&rows, self.shard)?;
        tch::no_grad(|| whole.f_view([ranks, -1])?.f_copy_(&numbers))?;
        self.drop_room(pool)
    }

    /// Forgets what has come.
    pub(super) fn drop_room(&mut self, pool: &mut Pool) -> Result<()> {
        self.is_under_way = false;
        pool.drain(&self.received)
    }
}

/// Gradients that are added up as integers (qgZ).
///
/// Every rank sends each other its part of the sum and adds what comes in float32, so numbers are
/// rounded once. Where a copy of the model spans several machines, ranks of one machine do so first,
/// and then those that have the same place on all machines, so that a number crosses between machines
/// once for each of them: it is rounded twice.
///
/// # Source
/// `all_to_all_quant_reduce` of DeepSpeed's ZeRO++.
pub(super) struct GradientWire {
    code: Blockwise,
    shard: usize,
    /// Ranks of one machine, and machines; one machine where there is one level.
    ranks: usize,
    machines: usize,
    /// `[ranks * bytes]`; has memory only while a reduction runs.
    received: Tensor,
}

impl GradientWire {
    pub(super) fn new(
        code: Blockwise,
        layout: &Layout,
        groups: &Groups,
        at: Device,
    ) -> Result<Self> {
        let machines = groups.across().map_or(1, |(_, across)| across.size());
        let ranks = groups.shards() / machines.max(1);
        Ok(Self {
            code,
            shard: layout.shard(),
            ranks,
            machines,
            received: room(ranks * code.bytes(machines * layout.shard()), at)?,
        })
    }

    /// Whether the end of a reduction is a collective too.
    pub(super) fn has_two_levels(&self) -> bool {
        self.machines > 1
    }

    /// Starts to add up what is in `whole`.
    ///
    /// # Collective
    /// The ranks that hold one copy call this in one order for all storages.
    pub(super) fn start(
        &mut self,
        whole: &Tensor,
        groups: &Groups,
        pool: &mut Pool,
    ) -> Result<Work> {
        let (ranks, machines) = (length(self.ranks), length(self.machines));
        let parts = whole.f_view([machines, ranks, -1])?;
        let parts = parts.f_permute([1i64, 0, 2])?.f_reshape([ranks, -1])?;
        let sent = self.code.encode(&parts)?.f_view([-1])?;
        pool.fill(&self.received, self.received.numel())?;
        let group = match groups.across() {
            Some((node, _)) => node,
            None => &groups.reduce,
        };
        Ok(group.all_to_all_single_async(&self.received, &sent, &[], &[])?)
    }

    /// Writes this rank's part of the sum into `own`.
    ///
    /// # Collective
    /// Where it [has two levels](Self::has_two_levels), the ranks that hold one copy call this in one
    /// order for all storages.
    pub(super) fn finish(&mut self, own: &Tensor, groups: &Groups, pool: &mut Pool) -> Result<()> {
        let mut sum = self.sum(&self.received, self.ranks, self.machines * self.shard)?;
        pool.drain(&self.received)?;
        if let Some((_, across)) = groups.across() {
            let parts = sum.f_view([length(self.machines), -1])?;
            let sent = self.code.encode(&parts)?.f_view([-1])?;
            let received = sent.f_empty_like()?;
            across.all_to_all_single(&received, &sent, &[], &[])?;
            sum = self.sum(&received, self.machines, self.shard)?;
        }
        tch::no_grad(|| own.shallow_clone().f_copy_(&sum))?;
        Ok(())
    }

    fn sum(&self, received: &Tensor, rows: usize, count: usize) -> Result<Tensor> {
        let rows = received.f_view([length(rows), -1])?;
        let numbers = self.code.decode(&rows, count)?;
        Ok(numbers.f_sum_dim_intlist([0i64].as_slice(), false, Kind::Float)?)
    }
}

/// Bytes that are not there yet.
fn room(bytes: usize, at: Device) -> Result<Tensor> {
    let room = Tensor::f_empty([length(bytes)], (Kind::Uint8, at))?;
    storage::release(&room)?;
    Ok(room)
}
