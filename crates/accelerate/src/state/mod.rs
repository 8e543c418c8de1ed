//! Who am I: rank, world, device and backend of this process, and process control.

mod control;
mod distributed_type;
mod partial_state;

pub use control::ProcessTurn;
pub use distributed_type::DistributedType;
pub use partial_state::{PartialState, StateOptions};
