//! What is held in shards.

use std::{fmt, num::NonZeroUsize};

use crate::choice::choices;

choices! {
    /// What ranks hold in shards; each value includes those before it.
    ///
    /// What is not in shards is whole on every rank of a shard group. With `Gradients`, parameters
    /// are whole while a step computes; whether they are between steps too is up to whoever executes
    /// the plan, because it changes neither results nor the peak of memory.
    #[derive(PartialOrd, Ord)]
    Sharded ("what is sharded") {
        /// Nothing: ranks are copies (`NO_SHARD`, stage 0).
        Nothing = "nothing",
        /// The state of the optimizer (stage 1).
        OptimizerState = "optimizer state",
        /// Gradients too (`SHARD_GRAD_OP`, stage 2).
        Gradients = "optimizer state, gradients",
        /// Parameters too (`FULL_SHARD`, stage 3).
        Parameters = "optimizer state, gradients, parameters",
    }

    /// How numbers travel.
    Quantised ("numbers on the way") {
        /// As they are computed.
        No = "as computed",
        /// As 8-bit integers with a scale for each group (qwZ).
        Int8 = "int8",
        /// As 4-bit integers with a scale for each group (qgZ).
        Int4 = "int4",
    }
}

/// What becomes of a unit's gathered parameters after its forward pass. Means something only where
/// parameters are sharded: [`Sharded::Parameters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AfterForward {
    /// They stay whole until the unit's backward pass is over.
    Keep,
    /// They are dropped, and gathered again for the backward pass.
    Release,
    /// They are dropped but for a second, finer copy in shards of a smaller group, from which the
    /// backward pass gathers (hpZ; `reshard_after_forward` with a number).
    ReleaseTo(
        /// Ranks of the smaller group: a divisor of the shard axis, at least 2.
        NonZeroUsize,
    ),
}

impl fmt::Display for AfterForward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep => f.pad("kept until the backward pass is over"),
            Self::Release => f.pad("released, gathered again for the backward pass"),
            Self::ReleaseTo(size) => write!(f, "released to second shards over {size} ranks"),
        }
    }
}
