//! Who am I: rank, world, device and backend of this process, and process control.

mod control;
mod departure;
mod distributed_type;
mod leave_signal;
mod partial_state;
mod presence;
mod roll_call;
mod split;
mod tear_down;
mod turn;

pub use distributed_type::DistributedType;
pub use leave_signal::LeaveSignal;
pub use partial_state::{PartialState, StateOptions};
pub use presence::Attendance;
pub use roll_call::RollCall;
pub(crate) use roll_call::naming;
pub use split::{EachTensor, Part, Share, Split};
pub use turn::ProcessTurn;
