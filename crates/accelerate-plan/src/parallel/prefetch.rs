//! When the next unit is gathered.

use std::{fmt, num::NonZeroUsize};

use crate::settings::BackwardPrefetch;

/// When units are gathered before they are needed, and how many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefetch {
    /// In the backward pass: before the current unit's gradients are computed, after them, or when
    /// the unit is needed.
    pub backward: BackwardPrefetch,
    /// Whether the next unit of the forward pass is gathered early, in the order of the first step.
    pub forward: bool,
    /// How much may be gathered ahead.
    pub limit: PrefetchLimit,
}

/// How much may be gathered ahead of its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PrefetchLimit {
    /// This many gathers may be on their way at once.
    Gathers(NonZeroUsize),
    /// By numbers of elements.
    Elements {
        /// Elements that are fetched ahead.
        ahead: u64,
        /// Elements that are whole at one time.
        live: u64,
        /// A unit that is used again within so many elements is not released.
        reuse_distance: u64,
    },
    /// No limit.
    Unlimited,
}

impl fmt::Display for Prefetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backward = match self.backward {
            BackwardPrefetch::BackwardPre => "before the current gradients",
            BackwardPrefetch::BackwardPost => "after the current gradients",
            BackwardPrefetch::NoPrefetch => "none",
        };
        let forward = if self.forward { "early" } else { "none" };
        write!(f, "backward: {backward}, forward: {forward}")?;
        match self.limit {
            PrefetchLimit::Gathers(count) => write!(f, ", at most {count} gathers at once"),
            PrefetchLimit::Elements {
                ahead,
                live,
                reuse_distance,
            } => write!(
                f,
                ", {ahead} elements ahead, at most {live} whole, kept if used again within \
                 {reuse_distance}"
            ),
            PrefetchLimit::Unlimited => Ok(()),
        }
    }
}
