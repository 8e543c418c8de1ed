//! Ways to train one model on several ranks.

mod comm_hook;
mod ddp;
mod join;
mod local_sgd;

pub use accelerate_torch::{BoxError, Future, ProcessGroup, Promise, ReduceOp, promise};
pub(crate) use comm_hook::Memory as PowerSgdMemory;
pub use comm_hook::{
    CommHook, CommWrapper, CompressionStats, CustomHook, GradientBucket, PowerSgdOptions,
};
pub(crate) use ddp::backward;
pub use ddp::{DataParallel, DistributedDataParallelKwargs, Gradients, UnusedReport};
pub use join::{Joinable, join_uneven_inputs};
pub use local_sgd::LocalSgd;
