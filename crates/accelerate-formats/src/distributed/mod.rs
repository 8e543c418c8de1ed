//! Distributed checkpoints of PyTorch (`torch.distributed.checkpoint`): a folder with one file or
//! more for each rank, and a description of who holds which part of what.
//!
//! A tensor is cut into boxes ([`Chunk`]). [`DistributedCheckpoint::read_box`] puts any other box
//! together from them, so that a checkpoint written by some ranks is read by any other number; only
//! the bytes of that box are touched. Values that are no tensors lie in the same files.
//!
//! Each rank writes with a [`DistributedWriter`], and one of them then writes the description from
//! what all ranks report ([`write_description`]): without it, the folder is no checkpoint.
//!
//! # Source
//! Format version 1.0.0, as PyTorch 2.13 writes it; the places of classes of older releases are
//! known too.

mod description;
mod flatten;
mod nested;
mod read;
mod write;
mod write_source;

pub use self::description::{Chunk, PathPart, ShardedTensor};
pub use self::flatten::{FlatValue, flatten};
pub use self::read::DistributedCheckpoint;
pub use self::write::{ChunkToWrite, DistributedWriter, WrittenPart, write_description};
pub use self::write_source::write_distributed;

/// The description of a folder.
pub const DESCRIPTION_FILE: &str = ".metadata";
