//! Optimizers that average their weights instead of following a schedule.
//!
//! They keep a point `z` that makes the steps, and an average `x` of the points that it was
//! at. Gradients are taken between both, at `y = beta * x + (1 - beta) * z`. Only `z` is
//! stored: a parameter holds `y` while it is trained, and `x` to be evaluated and saved, and
//! [`train`](super::Optimizer::train) and [`eval`](super::Optimizer::eval) change between
//! them. Neither knows how long training is going to be.

mod adamw;
mod averaged;
mod progress;
mod sgd;

pub use adamw::{AdamWScheduleFree, AdamWScheduleFreeConfig};
pub use sgd::{SgdScheduleFree, SgdScheduleFreeConfig};
