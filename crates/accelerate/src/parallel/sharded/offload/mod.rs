//! What of a model in shards is kept elsewhere than on the device.
//!
//! Of each storage a rank keeps a shard of the parameters and one of the gradients; the optimizer
//! keeps its state. Each of them has a home:
//!
//! | home | while nobody computes with it |
//! | --- | --- |
//! | device | it stays where it is |
//! | CPU | it is in CPU memory, pinned if the plan says so, where a device that is none copies from and to |
//! | disk | it is in a file, of which parts are in memory that were just used or are needed next |
//!
//! What is in memory when everything is on disk, besides activations:
//!
//! | when | what |
//! | --- | --- |
//! | forward and backward pass | the whole parameters of the unit that computes, and of the next; this rank's shards of both, until they are copied |
//! | reduction | the whole gradients of a unit, twice; this rank's shard of them, until it is written |
//! | clipping | gradients, as far as memory reaches: they are only read |
//! | step | of parameters, gradients and each kind of state the part that is updated, the next one, and three that are being written |
//! | between steps | nothing |
//!
//! The parameters of an optimizer on the CPU are there too between the passes: the step is computed
//! where they are. Where parameters are kept and computed with in one type, on a CPU, there is no
//! float32 copy of them that could be on disk while they are not.

mod home;
mod optimizer;

pub(super) use home::{Folders, Home, Homes};
pub(crate) use optimizer::offload_optimizer;
