//! One file of a save, of either kind.

use std::path::Path;
use std::sync::Arc;

use super::ShardFormat;
use crate::atomic_file::SealedFile;
use crate::error::{Error, Result, TorchWriteFault, WriteFault};
use crate::safetensors::{Metadata, SafetensorsWriter, TensorHeader};
use crate::tensor::{Storage, StoredTensor};
use crate::torch::TorchWriter;
use crate::value::Dict;

/// What a file is to hold.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) tensors: Vec<TensorHeader>,
    /// Second names of these tensors, each with the first.
    pub(super) aliases: Vec<(String, String)>,
    pub(super) metadata: Metadata,
}

/// A file that is being written.
#[derive(Debug)]
pub(super) enum ShardWriter {
    Safetensors(SafetensorsWriter),
    Torch {
        writer: TorchWriter,
        /// The tensors, in the order of their storages.
        pending: std::vec::IntoIter<TensorHeader>,
    },
}

impl ShardWriter {
    pub(super) fn create(path: &Path, shard: Shard, format: ShardFormat) -> Result<Self> {
        let Shard {
            tensors,
            aliases,
            metadata,
        } = shard;
        match format {
            ShardFormat::Safetensors => {
                let metadata = aliases
                    .into_iter()
                    .fold(metadata, |metadata, (alias, stored)| {
                        metadata.with(alias, stored)
                    });
                SafetensorsWriter::create(path, tensors, &metadata).map(Self::Safetensors)
            }
            ShardFormat::Torch => {
                let dict = state_dict(path, &tensors, &aliases)?;
                Ok(Self::Torch {
                    writer: TorchWriter::create(path, &dict.into())?,
                    pending: tensors.into_iter(),
                })
            }
        }
    }

    pub(super) fn pending(&self) -> Option<&TensorHeader> {
        match self {
            Self::Safetensors(writer) => writer.pending(),
            Self::Torch { pending, .. } => pending.as_slice().first(),
        }
    }

    pub(super) fn position(&self) -> u64 {
        match self {
            Self::Safetensors(writer) => writer.position(),
            Self::Torch { writer, .. } => writer.position(),
        }
    }

    pub(super) fn write_pieces<P: AsRef<[u8]>>(
        &mut self,
        name: &str,
        pieces: impl IntoIterator<Item = Result<P>>,
    ) -> Result<()> {
        match self {
            Self::Safetensors(writer) => writer.write_pieces(name, pieces),
            Self::Torch { writer, pending } => {
                let next = pending.as_slice().first();
                if next.is_none_or(|next| next.name != name) {
                    return Err(Error::Unwritable {
                        path: writer.path().to_owned(),
                        fault: WriteFault::OutOfOrder {
                            expected: next.map(|next| next.name.clone()),
                            found: name.to_owned(),
                        },
                    });
                }
                writer.write_pieces(pieces)?;
                pending.next();
                Ok(())
            }
        }
    }

    pub(super) fn seal(self) -> Result<SealedFile> {
        match self {
            Self::Safetensors(writer) => writer.seal(),
            Self::Torch { writer, .. } => writer.seal(),
        }
    }
}

/// A dict from name to tensor, the bytes of which are still to come.
fn state_dict(path: &Path, tensors: &[TensorHeader], aliases: &[(String, String)]) -> Result<Dict> {
    let mut dict = Dict::new();
    for TensorHeader { name, dtype, shape } in tensors {
        let refused = || Error::TorchUnwritable {
            path: path.to_owned(),
            fault: TorchWriteFault::Dtype { dtype: *dtype },
        };
        dtype.torch_name().ok_or_else(refused)?;
        let bytes = dtype.bits_of(shape).ok_or_else(refused)? / 8;
        let storage = Arc::new(Storage::pending(bytes));
        let tensor = StoredTensor::in_rows(*dtype, shape.clone(), storage);
        let others = aliases.iter().filter(|(_, stored)| stored == name);
        for (alias, _) in others {
            dict.push(alias.clone(), tensor.clone());
        }
        dict.push(name.clone(), tensor);
    }
    Ok(dict)
}
