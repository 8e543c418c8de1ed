//! From any source of tensors to a folder of one or several files.

use std::collections::HashMap;
use std::path::Path;

use super::{ChunkToWrite, DistributedWriter, PathPart, write_description};
use crate::atomic_folder::AtomicFolder;
use crate::error::{DistributedFault, Error, Result, TorchWriteFault};
use crate::safetensors::TensorHeader;
use crate::sharded::{ShardSize, plan_shards};
use crate::source::TensorSource;

/// Writes everything a source has as a distributed checkpoint below the key `key`, and names its
/// files: one, or as many as `max_shard_size` asks for, as if so many ranks had written it.
///
/// The folder must be absent or empty, and is whole or absent. Tied tensors are stored once: both
/// names have one place. Memory is needed for a few rows of one tensor; what is read is mapped.
///
/// # Errors
/// [`Error::Occupied`] if there is something in the folder, those of the source, and of
/// [`DistributedWriter`].
pub fn write_distributed(
    source: &dyn TensorSource,
    folder: impl AsRef<Path>,
    key: &str,
    max_shard_size: ShardSize,
) -> Result<Vec<String>> {
    let headers = source.headers();
    let folder = folder.as_ref();
    let aliases = aliases(source, &headers, folder)?;
    let target = AtomicFolder::create(folder)?;
    let mut parts = Vec::new();
    let mut files = Vec::new();
    for (rank, tensors) in plan_shards(headers, max_shard_size).into_iter().enumerate() {
        let mut writer = DistributedWriter::create(target.path(), rank)?;
        for tensor in &tensors {
            write_tensor(&mut writer, source, key, tensor).map_err(|error| {
                // The hidden folder is gone when this is read.
                error.moved(target.path(), folder)
            })?;
            for alias in aliases.get(&tensor.name).into_iter().flatten() {
                let stored = format!("{key}.{}", tensor.name);
                let path = [PathPart::Key(key.to_owned()), PathPart::Key(alias.clone())];
                writer.refer(&format!("{key}.{alias}"), &path, &stored)?;
            }
        }
        files.push(writer.file_name().to_owned());
        parts.push(
            writer
                .finish()
                .map_err(|error| error.moved(target.path(), folder))?,
        );
    }
    write_description(target.path(), &parts).map_err(|error| error.moved(target.path(), folder))?;
    target.commit()?;
    Ok(files)
}

fn write_tensor(
    writer: &mut DistributedWriter,
    source: &dyn TensorSource,
    key: &str,
    tensor: &TensorHeader,
) -> Result<()> {
    let name = format!("{key}.{}", tensor.name);
    let path = [
        PathPart::Key(key.to_owned()),
        PathPart::Key(tensor.name.clone()),
    ];
    let chunk = ChunkToWrite {
        name: &name,
        path: &path,
        dtype: tensor.dtype,
        shape: &tensor.shape,
        offsets: &vec![0; tensor.shape.len()],
        sizes: &tensor.shape,
    };
    writer.write_chunk_pieces(chunk, source.pieces(&tensor.name)?)
}

/// The second names of each tensor. Refuses what no folder can hold, before anything is written.
fn aliases(
    source: &dyn TensorSource,
    headers: &[TensorHeader],
    folder: &Path,
) -> Result<HashMap<String, Vec<String>>> {
    let unknown = headers
        .iter()
        .find(|header| header.dtype.torch_name().is_none());
    if let Some(header) = unknown {
        return Err(Error::TorchUnwritable {
            path: folder.to_owned(),
            fault: TorchWriteFault::Dtype {
                dtype: header.dtype,
            },
        });
    }
    let mut aliases: HashMap<String, Vec<String>> = HashMap::new();
    for (alias, stored) in source.aliases() {
        if headers.iter().any(|header| header.name == alias) {
            return Err(Error::Distributed {
                folder: folder.to_owned(),
                fault: Box::new(DistributedFault::Conflict { name: alias }),
            });
        }
        aliases.entry(stored).or_default().push(alias);
    }
    Ok(aliases)
}
