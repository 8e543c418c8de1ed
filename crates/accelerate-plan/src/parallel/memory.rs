//! How much memory a plan takes on each rank.
//!
//! With P trainable elements, shards over S ranks, m bytes of an element that is kept and updated
//! (4 for float32), c bytes of one that is computed with (2 in 16 bits), where `/S` rounds up:
//!
//! | sharded | weights | copies | gradients | optimizer |
//! | --- | --- | --- | --- | --- |
//! | nothing | m P | c P if c is not m | m P | state |
//! | optimizer state, c = m | m P | | m P | state/S |
//! | optimizer state, c < m | m P/S | c P | c P | state/S |
//! | gradients, c = m | m P | | m P/S | state/S |
//! | gradients, c < m | m P/S | c P | m P/S | state/S |
//! | parameters | m P/S | c G | m P/S | state/S |
//!
//! G are the elements that are whole at one time: the unit of the root, and the two largest other
//! units (one computes while the next is fetched; one of them without prefetch). Where parameters are
//! kept elsewhere than the optimizer's copies of them, shards in the computed type come on top (c P/S),
//! and so does a second shard (c P over the smaller group). Buffers are whole on every rank.
//! Parameters that a plan never releases because they are small are not counted.

use super::{AfterForward, FloatType, ParallelPlan, Sharded, Storage};
use crate::settings::BackwardPrefetch;

/// The elements of a unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct UnitSize {
    /// Of parameters that are trained.
    pub trainable: u64,
    /// Of parameters that are frozen.
    pub frozen: u64,
}

impl UnitSize {
    const fn all(self) -> u64 {
        self.trainable.saturating_add(self.frozen)
    }
}

/// What a plan must know of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSizes {
    /// The unit of the root: what is in no other unit.
    pub root: UnitSize,
    /// The other units.
    pub units: Vec<UnitSize>,
    /// The type the model was loaded in.
    pub loaded: FloatType,
    /// Bytes of buffers and of whatever else is whole on every rank.
    pub fixed_bytes: u64,
    /// Bytes of the optimizer's state for the whole model.
    pub optimizer_bytes: u64,
}

impl ModelSizes {
    fn sum(&self, of: impl Fn(UnitSize) -> u64) -> u64 {
        let units = self.units.iter().copied().chain([self.root]);
        units.map(of).fold(0, u64::saturating_add)
    }
}

/// Bytes on one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RankMemory {
    /// Weights that are kept and updated, frozen ones, buffers.
    pub weights: u64,
    /// Weights in another type, or gathered from other ranks, to compute with.
    pub copies: u64,
    /// Gradients.
    pub gradients: u64,
    /// State of the optimizer.
    pub optimizer: u64,
}

impl RankMemory {
    /// Everything.
    pub const fn total(self) -> u64 {
        self.weights
            .saturating_add(self.copies)
            .saturating_add(self.gradients)
            .saturating_add(self.optimizer)
    }
}

/// Bytes on one rank by where they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Placed {
    /// On the device.
    pub device: u64,
    /// In CPU memory.
    pub cpu: u64,
    /// On disk.
    pub disk: u64,
}

impl Placed {
    fn add(&mut self, storage: &Storage, bytes: u64) {
        let place = match storage {
            Storage::Device => &mut self.device,
            Storage::Cpu { .. } => &mut self.cpu,
            Storage::Disk { .. } => &mut self.disk,
        };
        *place = place.saturating_add(bytes);
    }
}

/// The part of `whole` that one of `ranks` holds, which has the place `index` among them: equal parts
/// that are rounded up, and what is left for the last ones. Over all places the parts make the whole.
///
/// ```
/// use accelerate_plan::parallel::memory::part;
///
/// assert_eq!([0, 1, 2, 3].map(|rank| part(5, 4, rank)), [2, 2, 1, 0]);
/// ```
pub fn part(whole: u64, ranks: u64, index: u64) -> u64 {
    let each = whole.div_ceil(ranks.max(1));
    let begin = each.saturating_mul(index).min(whole);
    let end = begin.saturating_add(each).min(whole);
    end - begin
}

impl ParallelPlan {
    /// The bytes that the rank at the place `index` of its shard group holds of a model. The first
    /// one holds the most.
    ///
    /// # Units
    /// Bytes.
    pub fn rank_memory(&self, model: &ModelSizes, index: u64) -> RankMemory {
        let sizes = self.sizes(model, index);
        RankMemory {
            weights: sizes.kept.saturating_add(model.fixed_bytes),
            copies: sizes.gathered.saturating_add(sizes.computed_shard),
            gradients: sizes.gradients,
            optimizer: sizes.optimizer,
        }
    }

    /// The same bytes by where they are.
    ///
    /// # Units
    /// Bytes.
    pub fn placed_memory(&self, model: &ModelSizes, index: u64) -> Placed {
        let sizes = self.sizes(model, index);
        let offload = &self.offload;
        let mut placed = Placed::default();
        placed.add(&Storage::Device, model.fixed_bytes);
        placed.add(&Storage::Device, sizes.gathered);
        placed.add(&offload.parameters, sizes.computed_shard);
        placed.add(&offload.gradients, sizes.gradients);
        let away = |bytes: u64| (bytes as f64 * offload.optimizer_ratio) as u64;
        let master = match self.has_own_master(model) {
            true => &offload.optimizer_state,
            false => &offload.parameters,
        };
        placed.add(master, sizes.kept);
        placed.add(&offload.optimizer_state, away(sizes.optimizer));
        let rest = sizes.optimizer.saturating_sub(away(sizes.optimizer));
        placed.add(&Storage::Device, rest);
        placed
    }

    /// Whether the optimizer's copy of the weights is another one than what is computed with.
    fn has_own_master(&self, model: &ModelSizes) -> bool {
        let precision = &self.precision;
        precision.compute(model.loaded) != precision.master(model.loaded)
            || self.offload.optimizer_state != self.offload.parameters
    }

    fn sizes(&self, model: &ModelSizes, index: u64) -> Sizes {
        let ranks = match self.sharded {
            Sharded::Nothing => 1,
            _ => self.mesh.shard.get() as u64,
        };
        let index = if ranks == 1 { 0 } else { index };
        // One rank shards nothing. Yet what it keeps elsewhere comes to the device unit by unit.
        let stays = self.offload.parameters == Storage::Device;
        let sharded = if ranks == 1 && stays {
            Sharded::Nothing
        } else {
            self.sharded
        };
        let master = self.precision.master(model.loaded).bytes();
        let computed = self.precision.compute(model.loaded).bytes();
        let is_low = computed != master;
        let trainable = model.sum(|unit| unit.trainable);
        let frozen = model.sum(|unit| unit.frozen);
        let loaded = model.loaded.bytes();
        let mine = part(trainable, ranks, index);
        let low_copy = if is_low {
            bytes(trainable, computed)
        } else {
            0
        };
        let (kept, gathered, gradients) = match sharded {
            Sharded::Nothing => (bytes(trainable, master), low_copy, bytes(trainable, master)),
            Sharded::OptimizerState if is_low => {
                (bytes(mine, master), low_copy, bytes(trainable, computed))
            }
            Sharded::OptimizerState => (bytes(trainable, master), 0, bytes(trainable, master)),
            Sharded::Gradients if is_low => (bytes(mine, master), low_copy, bytes(mine, master)),
            Sharded::Gradients => (bytes(trainable, master), 0, bytes(mine, master)),
            Sharded::Parameters => (
                bytes(mine, master),
                bytes(self.whole_at_once(model), computed),
                bytes(mine, master),
            ),
        };
        let is_cut = sharded == Sharded::Parameters;
        let kept_frozen = if is_cut {
            part(frozen, ranks, index)
        } else {
            frozen
        };
        Sizes {
            kept: kept.saturating_add(bytes(kept_frozen, loaded)),
            gathered,
            computed_shard: if is_cut {
                self.computed_shard(trainable, mine, computed)
            } else {
                0
            },
            gradients,
            optimizer: part(model.optimizer_bytes, ranks, index),
        }
    }

    /// Shards in the computed type, besides those that the optimizer updates.
    fn computed_shard(&self, trainable: u64, mine: u64, computed: u64) -> u64 {
        let apart = match self.offload.parameters == self.offload.optimizer_state {
            true => 0,
            false => bytes(mine, computed),
        };
        let second = match self.after_forward {
            AfterForward::ReleaseTo(size) => bytes(trainable.div_ceil(size.get() as u64), computed),
            AfterForward::Keep | AfterForward::Release => 0,
        };
        apart.saturating_add(second)
    }

    /// The elements that are whole at one time where parameters are sharded.
    fn whole_at_once(&self, model: &ModelSizes) -> u64 {
        let all = model.sum(UnitSize::all);
        if self.after_forward == AfterForward::Keep {
            return all;
        }
        let prefetches =
            self.prefetch.forward || self.prefetch.backward != BackwardPrefetch::NoPrefetch;
        let mut units: Vec<u64> = model.units.iter().map(|unit| unit.all()).collect();
        units.sort_unstable_by(|left, right| right.cmp(left));
        let live = units.into_iter().take(if prefetches { 2 } else { 1 });
        live.fold(model.root.all(), u64::saturating_add).min(all)
    }
}

/// Bytes on one rank, as finely as they are counted.
struct Sizes {
    /// Weights that are updated, and frozen ones.
    kept: u64,
    /// Whole weights to compute with.
    gathered: u64,
    /// Shards in the computed type.
    computed_shard: u64,
    gradients: u64,
    optimizer: u64,
}

fn bytes(elements: u64, each: u64) -> u64 {
    elements.saturating_mul(each)
}

#[cfg(test)]
mod tests;
