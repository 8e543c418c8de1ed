//! Weights in several safetensors files of limited size, with their index.
//!
//! [`ShardedWriter`] writes tensor after tensor, so that one of them is in memory at a time.
//! [`write_sharded`] does so for everything that has tensors by name: torch files, distributed
//! checkpoints, checkpoints of DeepSpeed. Tied tensors are stored once, and the other names go into
//! the metadata of the file, where [`Weights`](crate::Weights) and the `safetensors` package find
//! them.

mod plan;
mod shard_size;
mod source;
mod write;

pub use self::shard_size::{ShardSize, ShardSizeFault};
pub use self::source::{DistributedPart, TensorSource, write_sharded};
pub use self::write::{ShardedOptions, ShardedWriter};
