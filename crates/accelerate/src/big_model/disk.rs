//! Weights onto disk.

use std::path::Path;

use accelerate_formats::offload::OffloadEntry;
use accelerate_formats::{OffloadWriter, StoredTensor};
use tch::Tensor;

use super::source::tensor_bytes;
use super::weights::OffloadedWeights;
use crate::checkpoint::{dtype_of, with_plain_bytes};
use crate::{Error, Result};

/// Writes weights of a model into a folder, and gives them as they lie there.
///
/// What the index of the folder has already stays in it, but for these names.
pub(super) fn write_weights(
    folder: &Path,
    weights: &[(String, Tensor)],
) -> Result<OffloadedWeights> {
    let mut writer = OffloadWriter::create(folder)?;
    let needed = weights.iter().map(|(_, tensor)| tensor_bytes(tensor)).sum();
    check_space(folder, weights.len(), needed)?;
    for (name, tensor) in weights {
        write_one(&mut writer, name, tensor)?;
    }
    writer.finish()?;
    OffloadedWeights::of_folder_where(folder, |name| {
        weights.iter().any(|(known, _)| known == name)
    })
}

fn write_one(writer: &mut OffloadWriter, name: &str, tensor: &Tensor) -> Result<()> {
    let kind = tensor.f_kind()?;
    let dtype = dtype_of(kind).ok_or_else(|| Error::Argument {
        operation: "offload_weight",
        expected: "a type that files can hold".to_owned(),
        found: format!("`{kind:?}` in `{name}`"),
    })?;
    let shape: Vec<usize> = tensor.size().iter().map(|&size| size as usize).collect();
    with_plain_bytes(tensor, |bytes| writer.write(name, dtype, &shape, bytes))??;
    Ok(())
}

/// Writes weights of a checkpoint into a folder: those of safetensors files by saying where they are,
/// which writes nothing of them, others as they are.
pub(super) fn refer_or_write(folder: &Path, weights: &[(String, FromFile)]) -> Result<()> {
    let mut writer = OffloadWriter::create(folder)?;
    let others = weights.iter().filter(|(_, one)| one.safetensors.is_none());
    let (count, needed) = others.fold((0, 0), |(count, bytes), (_, one)| {
        (count + 1, bytes + one.stored.byte_len() as u64)
    });
    check_space(folder, count, needed)?;
    for (name, one) in weights {
        match &one.safetensors {
            Some((path, key)) => {
                // The folder may be looked at from anywhere.
                let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                writer.refer(name, OffloadEntry::in_safetensors(path, key, None));
            }
            None => {
                let (dtype, shape) = (one.stored.dtype(), one.stored.shape());
                writer.write(name, dtype, shape, &one.stored.bytes()?)?;
            }
        }
    }
    Ok(writer.finish()?)
}

/// A weight of a checkpoint.
#[derive(Debug)]
pub(super) struct FromFile {
    pub(super) stored: StoredTensor,
    /// The safetensors file that holds it, and its name there.
    pub(super) safetensors: Option<(std::path::PathBuf, String)>,
}

/// Refuses to begin what the file system has no room for. Where it does not tell, writing shows it.
fn check_space(folder: &Path, weights: usize, needed: u64) -> Result<()> {
    let Ok(status) = rustix::fs::statvfs(folder) else {
        return Ok(());
    };
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    if needed <= free {
        return Ok(());
    }
    Err(Error::OffloadSpace {
        folder: folder.to_owned(),
        weights,
        needed,
        free,
    })
}
