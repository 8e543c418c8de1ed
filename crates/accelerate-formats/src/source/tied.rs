//! The sources that know which of their tensors are tied.

use std::collections::HashMap;

use super::TensorSource;
use crate::error::Result;
use crate::safetensors::TensorHeader;
use crate::tensor::{Look, Pieces};
use crate::weights::Weights;
use crate::zero::ZeroCheckpoint;

/// Names of tensors, and of those that look exactly like an earlier one.
fn split_tied(weights: &Weights) -> (Vec<TensorHeader>, Vec<(String, String)>) {
    let mut first: HashMap<Look, &str> = HashMap::new();
    let (mut headers, mut aliases) = (Vec::new(), Vec::new());
    for tensor in weights.tensors() {
        let stored = tensor.stored();
        if let Some(look) = stored.look() {
            if let Some(owner) = first.get(&look) {
                aliases.push((tensor.name().to_owned(), (*owner).to_owned()));
                continue;
            }
            first.insert(look, tensor.name());
        }
        headers.push(TensorHeader {
            name: tensor.name().to_owned(),
            dtype: stored.dtype(),
            shape: stored.shape().to_vec(),
        });
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
