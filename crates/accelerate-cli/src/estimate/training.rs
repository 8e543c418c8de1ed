//! Memory for training on each process, under each way to share the work out.
//!
//! The numbers are those of [`accelerate_plan::parallel::memory`]. With P trainable elements, N
//! processes and shards over S of them (all, or those of one machine for `HYBRID_SHARD`), in bytes,
//! where `/S` rounds up:
//!
//! | plan | weights | copies | gradients | optimizer |
//! | --- | --- | --- | --- | --- |
//! | DDP | 4 P | | 4 P | state |
//! | DDP, mixed | 4 P | 2 P | 4 P | state |
//! | ZeRO-1 | 4 P | | 4 P | state/S |
//! | ZeRO-1, mixed | 4 P/S | 2 P | 2 P | state/S |
//! | ZeRO-2 | 4 P | | 4 P/S | state/S |
//! | ZeRO-2, mixed | 4 P/S | 2 P | 4 P/S | state/S |
//! | ZeRO-3 and `HYBRID_SHARD` | 4 P/S | 4 G | 4 P/S | state/S |
//! | the same, mixed | 4 P/S | 2 G | 4 P/S | state/S |
//!
//! G are the elements that are whole at one time: all that lies in no repeated block, and the two
//! largest blocks (one computes while the next one is fetched). Buffers and weights that cannot be
//! trained are whole everywhere. One process shards nothing: every plan is DDP then.

use std::num::NonZeroUsize;

use accelerate_plan::{
    MixedPrecision,
    parallel::{
        Cast, FloatType, Mesh, ParallelPlan, Sharded,
        memory::{ModelSizes, UnitSize},
    },
};
use clap::ValueEnum;
use serde::Serialize;

/// Bytes of a float32.
const FULL: u64 = 4;

/// What is trained, and what is only there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Inventory {
    pub(crate) trainable: Vec<Weight>,
    /// Weights that stay as they are, beside adapters that are trained.
    pub(crate) frozen: Vec<Weight>,
    /// The type of those, if that is not float32.
    pub(crate) frozen_dtype: Option<FloatType>,
    /// Buffers and quantised weights.
    pub(crate) fixed_bytes: u64,
}

/// A weight by its shape and place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Dotted name.
    pub(crate) name: String,
    pub(crate) shape: Vec<u64>,
    /// The repeated block it belongs to, by number.
    pub(crate) block: Option<usize>,
}

impl Weight {
    pub(crate) fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |all, &n| all.saturating_mul(n))
    }
}

impl Inventory {
    pub(crate) fn elements(&self) -> u64 {
        let elements = self.trainable.iter().map(Weight::elements);
        elements.fold(0, u64::saturating_add)
    }

    /// The model in units: its repeated blocks, and the root with everything else. Where the root is
    /// the only unit it has it all.
    pub(crate) fn sizes(&self, optimizer: Optimizer, has_units: bool) -> ModelSizes {
        let all = self.trainable.iter().chain(&self.frozen);
        let blocks = all.filter_map(|weight| weight.block).max();
        let mut units = vec![UnitSize::default(); blocks.map_or(0, |last| last + 1)];
        let mut root = UnitSize::default();
        let mut unit_of = |weight: &Weight, add: &dyn Fn(&mut UnitSize)| {
            let block = weight.block.filter(|_| has_units);
            let unit = block.and_then(|block| units.get_mut(block));
            add(unit.unwrap_or(&mut root));
        };
        for weight in &self.trainable {
            let elements = weight.elements();
            unit_of(weight, &|unit| {
                unit.trainable = unit.trainable.saturating_add(elements)
            });
        }
        for weight in &self.frozen {
            let elements = weight.elements();
            unit_of(weight, &|unit| {
                unit.frozen = unit.frozen.saturating_add(elements)
            });
        }
        ModelSizes {
            root,
            units,
            loaded: self.frozen_dtype.unwrap_or(FloatType::Float32),
            fixed_bytes: self.fixed_bytes,
            optimizer_bytes: self.state_bytes(optimizer),
        }
    }

    fn state_bytes(&self, optimizer: Optimizer) -> u64 {
        let states = self
            .trainable
            .iter()
            .map(|t| optimizer.state_bytes(&t.shape));
        states.fold(0, u64::saturating_add)
    }
}

/// An optimizer, by what it keeps for each parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Optimizer {
    /// two averages in float32
    Adamw,
    /// two averages in float32
    Adam,
    /// two averages in 8 bits, as in bitsandbytes
    #[serde(rename = "adamw_8bit")]
    #[value(name = "adamw_8bit")]
    Adamw8bit,
    /// nothing
    Sgd,
    /// one average in float32
    SgdMomentum,
    /// one average of each row and each column
    Adafactor,
    /// one average in float32
    Lion,
    /// one sum in float32
    Adagrad,
    /// one average in float32
    Rmsprop,
}

impl Optimizer {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Adamw => "adamw",
            Self::Adam => "adam",
            Self::Adamw8bit => "adamw_8bit",
            Self::Sgd => "sgd",
            Self::SgdMomentum => "sgd_momentum",
            Self::Adafactor => "adafactor",
            Self::Lion => "lion",
            Self::Adagrad => "adagrad",
            Self::Rmsprop => "rmsprop",
        }
    }

    /// The bytes kept for a parameter of this shape.
    pub(crate) fn state_bytes(self, shape: &[u64]) -> u64 {
        let product = |shape: &[u64]| shape.iter().fold(1_u64, |all, &n| all.saturating_mul(n));
        let elements = product(shape);
        match self {
            Self::Adam | Self::Adamw => elements.saturating_mul(2 * FULL),
            Self::Sgd => 0,
            Self::SgdMomentum | Self::Lion | Self::Adagrad | Self::Rmsprop => {
                elements.saturating_mul(FULL)
            }
            Self::Adamw8bit if elements < SMALLEST_8BIT => elements * 2 * FULL,
            Self::Adamw8bit => {
                let scales = elements.div_ceil(BLOCK_8BIT) * FULL;
                elements.saturating_add(scales).saturating_mul(2)
            }
            Self::Adafactor => match shape {
                [outer @ .., rows, columns] => {
                    let sums = rows.saturating_add(*columns);
                    product(outer).saturating_mul(sums).saturating_mul(FULL)
                }
                _ => elements.saturating_mul(FULL),
            },
        }
    }
}

/// Smaller parameters keep their averages in float32.
const SMALLEST_8BIT: u64 = 4096;
/// The values that share a scale.
const BLOCK_8BIT: u64 = 256;

/// What the processes share out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sharding {
    /// Every process holds everything.
    Ddp,
    /// The optimizer.
    Zero1,
    /// Optimizer and gradients.
    Zero2,
    /// Optimizer, gradients and weights.
    FullShard,
    /// The same within a machine; machines hold the same.
    HybridShard,
}

impl Sharding {
    pub(crate) const ALL: [Self; 5] = [
        Self::Ddp,
        Self::Zero1,
        Self::Zero2,
        Self::FullShard,
        Self::HybridShard,
    ];

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Ddp => "DDP",
            Self::Zero1 => "ZeRO-1",
            Self::Zero2 => "ZeRO-2 / SHARD_GRAD_OP",
            Self::FullShard => "ZeRO-3 / FULL_SHARD",
            Self::HybridShard => "HYBRID_SHARD",
        }
    }

    /// Over how many processes one copy is spread.
    pub(crate) fn degree(self, layout: Layout) -> u64 {
        match self {
            Self::Ddp => 1,
            Self::HybridShard => layout.num_processes / layout.num_machines,
            _ => layout.num_processes,
        }
    }
}

/// How many processes there are, on how many machines. Divisible, and not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) num_processes: u64,
    pub(crate) num_machines: u64,
}

/// The bytes on one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Usage {
    pub(crate) plan: Sharding,
    #[serde(serialize_with = "by_name")]
    pub(crate) mixed_precision: MixedPrecision,
    /// Over how many processes weights, gradients or optimizer are spread.
    pub(crate) shards: u64,
    pub(crate) weights_bytes: u64,
    /// Weights in lower precision, or gathered from other processes.
    pub(crate) copies_bytes: u64,
    pub(crate) gradients_bytes: u64,
    pub(crate) optimizer_bytes: u64,
    pub(crate) per_process_bytes: u64,
}

fn by_name<S: serde::Serializer>(value: &MixedPrecision, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(value.name())
}

/// What one process holds under a plan.
pub(crate) fn usage(
    inventory: &Inventory,
    plan: Sharding,
    layout: Layout,
    optimizer: Optimizer,
    mixed_precision: MixedPrecision,
) -> Usage {
    let shards = plan.degree(layout);
    let sizes = inventory.sizes(optimizer, true);
    let memory = compiled(plan, shards, mixed_precision).rank_memory(&sizes, 0);
    Usage {
        plan,
        mixed_precision,
        shards,
        weights_bytes: memory.weights,
        copies_bytes: memory.copies,
        gradients_bytes: memory.gradients,
        optimizer_bytes: memory.optimizer,
        per_process_bytes: memory.total(),
    }
}

/// The plan for one copy of a model over `shards` ranks.
pub(crate) fn compiled(
    plan: Sharding,
    shards: u64,
    mixed_precision: MixedPrecision,
) -> ParallelPlan {
    let ranks = usize::try_from(shards).ok().and_then(NonZeroUsize::new);
    let mesh = Mesh::sharded(ranks.unwrap_or(NonZeroUsize::MIN));
    let mut compiled = ParallelPlan::new(
        mesh,
        match plan {
            Sharding::Ddp => Sharded::Nothing,
            Sharding::Zero1 => Sharded::OptimizerState,
            Sharding::Zero2 => Sharded::Gradients,
            Sharding::FullShard | Sharding::HybridShard => Sharded::Parameters,
        },
    );
    // What is trained is float32, also where what is frozen was loaded in 16 bits.
    compiled.precision.is_master_float32 = true;
    if mixed_precision != MixedPrecision::No {
        compiled.precision.parameters = Cast::To(FloatType::BFloat16);
    }
    compiled
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 elements outside of blocks, blocks of 100, 80 and 60, and 8 bytes of buffers.
    fn inventory() -> Inventory {
        let tensor = |shape: &[u64], block| Weight {
            name: String::new(),
            shape: shape.to_vec(),
            block,
        };
        Inventory {
            trainable: vec![
                tensor(&[10], None),
                tensor(&[50, 2], Some(0)),
                tensor(&[80], Some(1)),
                tensor(&[30], Some(2)),
                tensor(&[30], Some(2)),
            ],
            fixed_bytes: 8,
            ..Inventory::default()
        }
    }

    const EIGHT: Layout = Layout {
        num_processes: 8,
        num_machines: 2,
    };

    fn parts(plan: Sharding, mixed: MixedPrecision) -> [u64; 4] {
        let usage = usage(&inventory(), plan, EIGHT, Optimizer::Adamw, mixed);
        let parts = [
            usage.weights_bytes,
            usage.copies_bytes,
            usage.gradients_bytes,
            usage.optimizer_bytes,
        ];
        assert_eq!(usage.per_process_bytes, parts.iter().sum::<u64>());
        parts
    }

    #[test]
    fn every_plan_in_full_precision() {
        let parts = |plan| parts(plan, MixedPrecision::No);
        assert_eq!(parts(Sharding::Ddp), [1008, 0, 1000, 2000]);
        assert_eq!(parts(Sharding::Zero1), [1008, 0, 1000, 250]);
        assert_eq!(parts(Sharding::Zero2), [1008, 0, 128, 250]);
        // 250 / 8 rounds up to 32 elements; 10 + 100 + 80 are whole.
        assert_eq!(parts(Sharding::FullShard), [136, 760, 128, 250]);
        assert_eq!(parts(Sharding::HybridShard), [260, 760, 252, 500]);
    }

    #[test]
    fn every_plan_in_lower_precision() {
        let parts = |plan| parts(plan, MixedPrecision::Bf16);
        assert_eq!(parts(Sharding::Ddp), [1008, 500, 1000, 2000]);
        assert_eq!(parts(Sharding::Zero1), [136, 500, 500, 250]);
        assert_eq!(parts(Sharding::Zero2), [136, 500, 128, 250]);
        assert_eq!(parts(Sharding::FullShard), [136, 380, 128, 250]);
    }

    #[test]
    fn one_process_shards_nothing() {
        let one = Layout {
            num_processes: 1,
            num_machines: 1,
        };
        let of = |plan| {
            let usage = usage(&inventory(), plan, one, Optimizer::Sgd, MixedPrecision::No);
            (usage.per_process_bytes, usage.shards)
        };
        for plan in Sharding::ALL {
            assert_eq!(of(plan), (2008, 1));
        }
    }

    #[test]
    fn optimizers_keep_what_they_keep() {
        let matrix = |optimizer: Optimizer| optimizer.state_bytes(&[100, 50]);
        assert_eq!(matrix(Optimizer::Adamw), 40_000);
        assert_eq!(matrix(Optimizer::Sgd), 0);
        assert_eq!(matrix(Optimizer::SgdMomentum), 20_000);
        assert_eq!(matrix(Optimizer::Adafactor), 600);
        assert_eq!(matrix(Optimizer::Adamw8bit), 2 * (5000 + 20 * 4));
        assert_eq!(Optimizer::Adamw8bit.state_bytes(&[10]), 80);
        assert_eq!(Optimizer::Adafactor.state_bytes(&[10]), 40);
        assert_eq!(Optimizer::Adafactor.state_bytes(&[3, 3, 4, 5]), 9 * 9 * 4);
    }

    #[test]
    fn without_blocks_everything_is_gathered_at_once() {
        let inventory = Inventory {
            trainable: vec![Weight {
                name: String::new(),
                shape: vec![100],
                block: None,
            }],
            ..Inventory::default()
        };
        let plan = Sharding::FullShard;
        let usage = usage(&inventory, plan, EIGHT, Optimizer::Sgd, MixedPrecision::No);
        assert_eq!(usage.copies_bytes, 400);
    }
}
