//! Operations between ranks over nested values of tensors, and over objects.
//!
//! Those over tensors take trees, leave values that are no tensors alone, and give the
//! same tree back. On a process by itself they change nothing.
//!
//! | operation | every rank gets |
//! | --- | --- |
//! | [`gather`] | the rows of all ranks, in rank order |
//! | [`reduce`] | one value made of those of all ranks |
//! | [`broadcast`] | the values of one rank |
//! | [`copy_tensor_to_devices`] | the tensor of the one rank that has it |
//! | [`pad_across_processes`] | its own rows, as many as the longest rank has |
//! | [`gather_object`], [`broadcast_object_list`] | the same for values that are no tensors |
//!
//! # When ranks do not agree
//! Each operation has a number and a call site on every rank. With `ACCELERATE_DEBUG_MODE`
//! ranks compare operation, arguments, shapes and kinds before data moves; if they differ,
//! every rank gets [`Error::CollectiveMismatch`](crate::Error::CollectiveMismatch), which
//! shows every rank's side. Without it nothing is sent beyond the data. Either way an
//! operation that fails because a rank is missing is
//! [`Error::CollectiveIncomplete`](crate::Error::CollectiveIncomplete), which names it and
//! says where each rank was last; of one that has ended, in debug mode.

mod broadcast;
mod call;
mod codec;
mod gather;
mod incomplete;
mod mismatch;
mod objects;
mod pad;
mod reduce;
mod wait;
mod watch;
mod whereabouts;
mod wire;

pub use broadcast::{broadcast, copy_tensor_to_devices};
pub use call::CallRecord;
pub(crate) use call::{Call, CallLog, Site, decode_note, encode_note, read_note};
pub use gather::gather;
pub use incomplete::{IncompleteReport, RankTrace};
pub use mismatch::{MismatchReport, RankSide};
pub use objects::{MAX_OBJECT_BYTES, broadcast_object_list, gather_object};
pub use pad::pad_across_processes;
pub use reduce::{Reduction, reduce};
pub(crate) use watch::{Operation, Watch};
pub(crate) use whereabouts::{explain, within};
