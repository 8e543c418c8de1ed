//! Gradients over several batches: when they are complete, and when ranks exchange them.
//!
//! A [`AccumulationScope`] stands for one batch of one or several [`Models`]. It decides
//! whether their gradients are complete with this batch and, where they are not, keeps
//! them on this rank.

mod counter;
mod models;
mod normalized;
mod plugin;
mod scope;
mod sync;

pub(crate) use counter::Counters;
pub(crate) use normalized::Tallies;
pub(crate) use scope::ScopeContext;
pub(crate) use sync::trigger;

pub use models::{ModelGradients, Models};
pub use normalized::{ItemCount, NormalizedLoss};
pub use plugin::GradientAccumulationPlugin;
pub use scope::AccumulationScope;
pub use sync::{LateSync, NoSync};
