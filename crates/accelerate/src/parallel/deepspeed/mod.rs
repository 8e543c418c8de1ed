//! What DeepSpeed's config means for the things that a program prepares.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `together` | what is prepared together, from which `auto` values come |
//! | `session` | the config of a job, and what became of it |
//! | `plugins` | several configs with names, one of which is selected |
//! | `named_optimizer`, `named_schedule`, `torch_schedule` | an optimizer or a schedule by the config's name for it |
//! | `refused` | the error for a value that this library cannot obey |

mod named_optimizer;
mod named_schedule;
mod plugins;
mod refused;
mod session;
mod together;
mod torch_schedule;

pub(crate) use plugins::Plugins;
pub(crate) use session::{DeepSpeed, Manner};
pub use together::Together;

#[cfg(test)]
mod tests;
