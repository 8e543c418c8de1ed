//! A part of a distributed checkpoint.

use std::collections::HashMap;

use super::TensorSource;
use crate::distributed::{Chunk, DistributedCheckpoint, PathPart};
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::safetensors::TensorHeader;
use crate::tensor::Pieces;

/// The tensors of a distributed checkpoint below one key, with the names they have there.
#[derive(Debug)]
pub struct DistributedPart<'c> {
    checkpoint: &'c DistributedCheckpoint,
    key: Option<String>,
    /// The names below the key, in the order of the whole names.
    names: Vec<String>,
    /// The whole name of each.
    whole: HashMap<String, String>,
    values: Vec<String>,
}

impl<'c> DistributedPart<'c> {
    /// The tensors below the first key `key`: those of `model.` for `model`.
    pub fn below(checkpoint: &'c DistributedCheckpoint, key: &str) -> Self {
        let below = |name: &str| {
            let short = name_below(checkpoint, name, key)?;
            Some((short, name.to_owned()))
        };
        let tensors = checkpoint.tensors().map(|tensor| tensor.name());
        let pairs: Vec<(String, String)> = tensors.filter_map(below).collect();
        let values = checkpoint.value_names().filter_map(below);
        Self {
            checkpoint,
            key: Some(key.to_owned()),
            names: pairs.iter().map(|(name, _)| name.clone()).collect(),
            values: values.map(|(name, _)| name).collect(),
            whole: pairs.into_iter().collect(),
        }
    }

    /// As [`below`](Self::below), where there is something.
    ///
    /// # Errors
    /// [`Error::NoPart`] with the keys there are.
    pub fn named(checkpoint: &'c DistributedCheckpoint, key: &str) -> Result<Self> {
        let part = Self::below(checkpoint, key);
        if part.names.is_empty() && part.values.is_empty() {
            return Err(Error::NoPart {
                path: checkpoint.folder().to_owned(),
                part: key.to_owned(),
                found: first_keys(checkpoint),
            });
        }
        Ok(part)
    }

    /// All tensors: below the only first key where there is only one, else with their whole names.
    ///
    /// # Source
    /// `merge_fsdp_weights`.
    pub fn of(checkpoint: &'c DistributedCheckpoint) -> Self {
        match checkpoint.only_key() {
            Some(key) => Self::below(checkpoint, key),
            None => Self::whole(checkpoint),
        }
    }

    /// All tensors, with their whole names.
    pub fn whole(checkpoint: &'c DistributedCheckpoint) -> Self {
        let tensors = checkpoint.tensors().map(|tensor| tensor.name().to_owned());
        let names: Vec<String> = tensors.collect();
        Self {
            checkpoint,
            key: None,
            whole: names
                .iter()
                .map(|name| (name.clone(), name.clone()))
                .collect(),
            names,
            values: checkpoint.value_names().map(str::to_owned).collect(),
        }
    }

    /// The key that was taken away from the names.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The names of everything in it that is no tensor.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// The name in the checkpoint of a tensor.
    pub fn whole_name<'n>(&'n self, name: &'n str) -> &'n str {
        self.whole.get(name).map_or(name, String::as_str)
    }

    /// Its tensors, and second names of those that lie in the very same places.
    fn split_tied(&self) -> (Vec<TensorHeader>, Vec<(String, String)>) {
        let mut first: HashMap<(Dtype, &[usize], &[Chunk]), &str> = HashMap::new();
        let (mut headers, mut aliases) = (Vec::new(), Vec::new());
        for name in &self.names {
            let Ok(tensor) = self.checkpoint.tensor(self.whole_name(name)) else {
                continue;
            };
            // Tensors without elements are never one another.
            if !tensor.shape().contains(&0) {
                let look = (tensor.dtype(), tensor.shape(), tensor.chunks());
                if let Some(&owner) = first.get(&look) {
                    aliases.push((name.clone(), owner.to_owned()));
                    continue;
                }
                first.insert(look, name);
            }
            headers.push(TensorHeader {
                name: name.clone(),
                dtype: tensor.dtype(),
                shape: tensor.shape().to_vec(),
            });
        }
        (headers, aliases)
    }
}

fn first_keys(checkpoint: &DistributedCheckpoint) -> Vec<String> {
    let tensors = checkpoint.tensors().map(|tensor| tensor.name());
    let names = tensors.chain(checkpoint.value_names());
    let mut keys: Vec<String> = names
        .map(|name| match checkpoint.path_of(name) {
            Some([PathPart::Key(key), ..]) => key.clone(),
            _ => name.split('.').next().unwrap_or(name).to_owned(),
        })
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
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
        self.split_tied().0
    }

    fn aliases(&self) -> Vec<(String, String)> {
        self.split_tied().1
    }

    fn pieces(&self, name: &str) -> Result<Pieces<'_>> {
        self.checkpoint.pieces(self.whole_name(name))
    }
}
