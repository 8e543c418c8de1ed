//! Weights in several files of limited size, with their index.
//!
//! [`ShardedWriter`] writes tensor after tensor, so that no more than one of them is in memory at a
//! time. [`write_sharded`] does so for everything that has tensors by name: torch files, distributed
//! checkpoints, checkpoints of DeepSpeed. Tied tensors are stored once. In safetensors files the
//! other names go into the metadata, where [`Weights`](crate::Weights) and the `safetensors` package
//! find them; in files of `torch.save` both names look at the same bytes.

mod format;
mod plan;
mod shard;
mod shard_size;
mod write;

use std::path::{Path, PathBuf};

pub use self::format::ShardFormat;
pub(crate) use self::plan::plan as plan_shards;
use self::shard::{Shard, ShardWriter};
pub use self::shard_size::{ShardSize, ShardSizeFault};
pub use self::write::{ShardedOptions, ShardedWriter};
use crate::error::Result;
use crate::safetensors::Metadata;
pub use crate::source::{DistributedPart, TensorSource};

/// Writes everything a source has into safetensors files, and names them.
///
/// Memory is needed for a few rows of one tensor; what is read is mapped.
///
/// # Errors
/// Those of the source, and of [`ShardedWriter`].
pub fn write_sharded(
    source: &dyn TensorSource,
    folder: impl AsRef<Path>,
    max_shard_size: ShardSize,
) -> Result<Vec<PathBuf>> {
    let options = ShardedOptions::default().with_max_shard_size(max_shard_size);
    write_sharded_with(source, folder, options)
}

/// As [`write_sharded`], with other options. Second names of the source come on top of those of the
/// options.
///
/// # Errors
/// As [`write_sharded`].
pub fn write_sharded_with(
    source: &dyn TensorSource,
    folder: impl AsRef<Path>,
    mut options: ShardedOptions,
) -> Result<Vec<PathBuf>> {
    options.aliases.extend(source.aliases());
    let mut writer = ShardedWriter::create(folder, source.headers(), &options)?;
    while let Some(name) = writer.pending().map(|tensor| tensor.name.clone()) {
        writer.write_pieces(&name, source.pieces(&name)?)?;
    }
    writer.finish()
}

/// Writes everything a source has into one file of any name.
///
/// # Errors
/// Those of the source, and of [`ShardedWriter`].
pub fn write_weight_file(
    source: &dyn TensorSource,
    path: impl AsRef<Path>,
    format: ShardFormat,
    metadata: &Metadata,
) -> Result<()> {
    let path = path.as_ref();
    let shard = Shard {
        tensors: source.headers(),
        aliases: source.aliases(),
        metadata: metadata.clone().with("format", "pt"),
    };
    let mut writer = ShardWriter::create(path, shard, format)?;
    while let Some(name) = writer.pending().map(|tensor| tensor.name.clone()) {
        let begin = writer.position();
        let written = source
            .pieces(&name)
            .and_then(|pieces| writer.write_pieces(&name, pieces));
        written.map_err(|error| error.of_tensor(&name, begin))?;
    }
    writer.seal()?.place()
}
