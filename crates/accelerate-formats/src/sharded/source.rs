//! From any checkpoint to safetensors files, one tensor at a time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{ShardSize, ShardedOptions, ShardedWriter};
use crate::distributed::{DistributedCheckpoint, PathPart};
use crate::error::Result;
use crate::safetensors::TensorHeader;
use crate::tensor::Storage;
use crate::weights::Weights;
use crate::zero::ZeroCheckpoint;

/// Something that has tensors by name.
pub trait TensorSource {
    /// All tensors that are stored, each once.
    fn headers(&self) -> Vec<TensorHeader>;

    /// Second names of tied tensors, each with a name in [`headers`](Self::headers).
    fn aliases(&self) -> Vec<(String, String)>;

    /// Puts a tensor in row-major order, little-endian, into `out`, in place of what it held.
    ///
    /// # Errors
    /// If there is none of this name, or it cannot be read.
    fn read_into(&self, name: &str, out: &mut Vec<u8>) -> Result<()>;
}

/// Writes everything a source has into safetensors files, and names them.
///
/// Memory is needed for the largest tensor; what is read is mapped.
///
/// # Errors
/// Those of the source, and of [`ShardedWriter`].
pub fn write_sharded(
    source: &dyn TensorSource,
    folder: impl AsRef<Path>,
    max_shard_size: ShardSize,
) -> Result<Vec<PathBuf>> {
    let mut options = ShardedOptions::default().with_max_shard_size(max_shard_size);
    options.aliases = source.aliases();
    let mut writer = ShardedWriter::create(folder, source.headers(), &options)?;
    let mut bytes = Vec::new();
    while let Some(name) = writer.pending().map(|tensor| tensor.name.clone()) {
        source.read_into(&name, &mut bytes)?;
        writer.write(&name, &bytes)?;
    }
    writer.finish()
}

/// A tensor by what it looks at: two of one look are tied.
type Look<'a> = (*const Storage, usize, &'a [usize], &'a [usize]);

/// Names of tensors, and of those that look exactly like an earlier one.
fn split_tied(weights: &Weights) -> (Vec<TensorHeader>, Vec<(String, String)>) {
    let mut first: HashMap<Look<'_>, &str> = HashMap::new();
    let (mut headers, mut aliases) = (Vec::new(), Vec::new());
    for tensor in weights.tensors() {
        let stored = tensor.stored();
        let look = (
            std::sync::Arc::as_ptr(stored.storage()),
            stored.offset(),
            stored.shape(),
            stored.strides(),
        );
        match first.get(&look) {
            // Tensors without elements are never one another.
            Some(owner) if stored.byte_len() > 0 => {
                aliases.push((tensor.name().to_owned(), (*owner).to_owned()));
            }
            _ => {
                first.insert(look, tensor.name());
                headers.push(TensorHeader {
                    name: tensor.name().to_owned(),
                    dtype: stored.dtype(),
                    shape: stored.shape().to_vec(),
                });
            }
        }
    }
    let known = weights
        .aliases()
        .map(|(alias, owner)| (alias.to_owned(), owner.to_owned()));
    aliases.extend(known);
    (headers, aliases)
}

impl TensorSource for Weights {
    fn headers(&self) -> Vec<TensorHeader> {
        split_tied(self).0
    }

    fn aliases(&self) -> Vec<(String, String)> {
        split_tied(self).1
    }

    fn read_into(&self, name: &str, out: &mut Vec<u8>) -> Result<()> {
        self.get(name)?.read_into(out)
    }
}

impl TensorSource for ZeroCheckpoint {
    fn headers(&self) -> Vec<TensorHeader> {
        self.tensors().cloned().collect()
    }

    fn aliases(&self) -> Vec<(String, String)> {
        Self::aliases(self)
            .map(|(alias, owner)| (alias.to_owned(), owner.to_owned()))
            .collect()
    }

    fn read_into(&self, name: &str, out: &mut Vec<u8>) -> Result<()> {
        Self::read_into(self, name, out)
    }
}

/// The tensors of a distributed checkpoint below one key, with the names they have there.
#[derive(Debug)]
pub struct DistributedPart<'c> {
    checkpoint: &'c DistributedCheckpoint,
    /// Name below the key, and whole name.
    names: Vec<(String, String)>,
}

impl<'c> DistributedPart<'c> {
    /// The tensors below the first key `key`: those of `model.` for `model`.
    pub fn below(checkpoint: &'c DistributedCheckpoint, key: &str) -> Self {
        let names = checkpoint.tensors().filter_map(|tensor| {
            let name = name_below(checkpoint, tensor.name(), key)?;
            Some((name, tensor.name().to_owned()))
        });
        Self {
            names: names.collect(),
            checkpoint,
        }
    }

    /// All tensors: below the only first key where there is only one, else with their whole names.
    ///
    /// # Source
    /// `merge_fsdp_weights`.
    pub fn of(checkpoint: &'c DistributedCheckpoint) -> Self {
        let mut keys = checkpoint
            .tensors()
            .map(|tensor| match checkpoint.path_of(tensor.name()) {
                Some([PathPart::Key(key), _, ..]) => Some(key),
                _ => None,
            });
        if let Some(Some(first)) = keys.next()
            && keys.all(|key| key == Some(first))
        {
            return Self::below(checkpoint, first);
        }
        let names = checkpoint
            .tensors()
            .map(|tensor| (tensor.name().to_owned(), tensor.name().to_owned()));
        Self {
            names: names.collect(),
            checkpoint,
        }
    }
}

fn name_below(checkpoint: &DistributedCheckpoint, name: &str, key: &str) -> Option<String> {
    match checkpoint.path_of(name) {
        Some([PathPart::Key(first), rest @ ..]) if first == key && !rest.is_empty() => {
            let parts = rest.iter().map(|part| match part {
                PathPart::Key(key) => key.clone(),
                PathPart::Index(index) => index.to_string(),
            });
            Some(parts.collect::<Vec<_>>().join("."))
        }
        Some(_) => None,
        None => Some(name.strip_prefix(key)?.strip_prefix('.')?.to_owned()),
    }
}

impl TensorSource for DistributedPart<'_> {
    fn headers(&self) -> Vec<TensorHeader> {
        let headers = self.names.iter().filter_map(|(name, whole)| {
            let tensor = self.checkpoint.tensor(whole).ok()?;
            Some(TensorHeader {
                name: name.clone(),
                dtype: tensor.dtype(),
                shape: tensor.shape().to_vec(),
            })
        });
        headers.collect()
    }

    fn aliases(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn read_into(&self, name: &str, out: &mut Vec<u8>) -> Result<()> {
        let whole = self.names.iter().find(|(known, _)| known == name);
        self.checkpoint
            .read_into(whole.map_or(name, |(_, whole)| whole), out)
    }
}
