//! Training with a part of the model on each rank: one engine for every plan.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `units` | which modules are units, and which parameters belong to which |
//! | `layout` | where parameters lie in a storage, and which part a rank keeps |
//! | `flat` | one storage: shards, the whole, and what parameters look at |
//! | `gradients` | its gradients: whole, on their way, a shard |
//! | `second` | second shards, from which the ranks of one machine gather for the backward pass |
//! | `wire`, `blockwise` | parameters and gradients that travel as small integers |
//! | `pool` | memory that storages lend each other |
//! | `engine`, `backward`, `order`, `unit` | all units: what is whole when, and what is reduced in which order |
//! | `agreement` | what ranks tell each other when a backward pass begins |
//! | `hooks` | the passes of one unit's module |
//! | `whole`, `optimizer_state` | everything whole again, to be looked at, saved and loaded |
//! | `pieces` | what a rank keeps, as boxes of parameters, for checkpoints that all ranks write |
//! | `norm` | the one norm of gradients that lie on many ranks |

mod agreement;
mod backward;
mod blockwise;
mod engine;
mod flat;
mod gradients;
mod groups;
mod hooks;
mod layout;
mod model;
mod norm;
mod optimizer_state;
mod order;
mod pieces;
mod pool;
mod second;
mod support;
mod unit;
mod units;
mod whole;
mod wire;

pub use model::ShardedModel;
pub(crate) use norm::total_norm;
pub(crate) use optimizer_state::{slices_of_state, visit_whole_state, whole_state_of};
pub(crate) use pieces::{Kept, Piece, pieces};
pub(crate) use support::check_optimizer;
pub(crate) use units::innermost_units;
