//! The sources that know which of their tensors are tied.

use std::collections::HashMap;
use std::sync::Arc;

use super::TensorSource;
use crate::error::Result;
use crate::safetensors::TensorHeader;
use crate::tensor::{Pieces, Storage};
use crate::weights::Weights;
use crate::zero::ZeroCheckpoint;

/// A tensor by what it looks at: two of one look are tied.
type Look<'a> = (*const Storage, usize, &'a [usize], &'a [usize]);

/// Names of tensors, and of those that look exactly like an earlier one.
fn split_tied(weights: &Weights) -> (Vec<TensorHeader>, Vec<(String, String)>) {
    let mut first: HashMap<Look<'_>, &str> = HashMap::new();
    let (mut headers, mut aliases) = (Vec::new(), Vec::new());
    for tensor in weights.tensors() {
        let stored = tensor.stored();
        let look = (
            Arc::as_ptr(stored.storage()),
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

    fn pieces(&self, name: &str) -> Result<Pieces<'_>> {
        self.get(name)?.stored().pieces()
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

    fn pieces(&self, name: &str) -> Result<Pieces<'_>> {
        Self::pieces(self, name)
    }
}
