//! Ways to train one model on several ranks.

mod ddp;

pub use ddp::{CommHook, DataParallel, DistributedDataParallelKwargs};
