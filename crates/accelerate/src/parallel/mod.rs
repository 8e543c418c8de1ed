//! Ways to train one model on several ranks, and to run one that is spread over them.

mod comm_hook;
mod ddp;
mod deepspeed;
mod join;
mod local_sgd;
mod pipeline;
mod sharded;
mod strategy;

pub use accelerate_torch::{BoxError, Future, ProcessGroup, Promise, ReduceOp, promise};
pub(crate) use comm_hook::Memory as PowerSgdMemory;
pub use comm_hook::{
    CommHook, CommWrapper, CompressionStats, CustomHook, GradientBucket, PowerSgdOptions,
};
pub use ddp::{DataParallel, DistributedDataParallelKwargs, Gradients, UnusedReport};
pub use deepspeed::Together;
pub(crate) use deepspeed::{DeepSpeed, Manner, Plugins};
pub use join::{Joinable, join_uneven_inputs};
pub use local_sgd::LocalSgd;
pub use pipeline::{Pipelined, PipelineOptions, PipelineStep, PipelinedModel, SplitPoints};
pub use sharded::ShardedModel;
pub(crate) use sharded::{
    Kept, Piece, check_optimizer, innermost_units, pieces, slices_of_state, total_norm,
    visit_whole_state,
    whole_state_of,
};
pub(crate) use strategy::{Strategy, backward};
