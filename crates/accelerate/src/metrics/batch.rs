//! How much is in a batch.

use tch::{Device, Kind, Tensor};

use crate::Result;
use crate::tree::{Tree, TreePath};

/// Under this name language models get which tokens are real.
const MASK: &str = "attention_mask";

/// What a batch holds, on this rank.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Amount {
    pub(super) samples: f64,
    pub(super) tokens: f64,
}

impl Amount {
    /// Of a batch: the rows of its first tensor, and the numbers in its first tensor of whole numbers with
    /// rows and columns, such as `input_ids`. Where a mask beside it lies in the memory of the
    /// process, only tokens count that it lets through.
    pub(super) fn of(batch: &dyn Tree) -> Self {
        let mut found = Found::default();
        // What cannot be looked at is not counted; whoever uses it will hear of it.
        let _ = batch.visit_paths(&TreePath::root(), &mut |path, tensor| {
            found.look_at(path, tensor)
        });
        Self {
            samples: found.rows.unwrap_or(0) as f64,
            tokens: found.masked.or(found.tokens).unwrap_or(0.0),
        }
    }
}

#[derive(Default)]
struct Found {
    rows: Option<i64>,
    tokens: Option<f64>,
    masked: Option<f64>,
}

impl Found {
    fn look_at(&mut self, path: &TreePath<'_>, tensor: &Tensor) -> Result<()> {
        let size = tensor.size();
        if self.rows.is_none() {
            self.rows = size.first().copied();
        }
        let [rows, columns] = size[..] else {
            return Ok(());
        };
        let kind = tensor.f_kind()?;
        if !matches!(kind, Kind::Int64 | Kind::Int | Kind::Bool) {
            return Ok(());
        }
        if self.masked.is_none() && path.passes(MASK) {
            if tensor.device() == Device::Cpu {
                self.masked = Some(tensor.f_sum(Kind::Int64)?.f_int64_value(&[])? as f64);
            }
        } else if self.tokens.is_none() && columns > 1 && kind != Kind::Bool {
            self.tokens = Some(rows as f64 * columns as f64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn amount(batch: &dyn Tree) -> (f64, f64) {
        let amount = Amount::of(batch);
        (amount.samples, amount.tokens)
    }

    #[test]
    fn samples_are_rows_and_tokens_are_whole_numbers_in_rows() {
        let cpu = |kind| (kind, Device::Cpu);
        let ids = Tensor::ones([2, 3], cpu(Kind::Int64));
        let pixels = Tensor::ones([4, 3, 2, 2], cpu(Kind::Float));
        let labels = Tensor::ones([4], cpu(Kind::Int64));
        assert_eq!(amount(&ids), (2.0, 6.0));
        assert_eq!(amount(&(pixels, labels)), (4.0, 0.0));
        assert_eq!(amount(&Tensor::from(1.0)), (0.0, 0.0));
        assert_eq!(amount(&Tensor::ones([0, 3], cpu(Kind::Int64))), (0.0, 0.0));
        let mask = Tensor::from_slice(&[1i64, 1, 1, 1, 0, 0]).reshape([2, 3]);
        let batch = BTreeMap::from([("input_ids", ids), (MASK, mask)]);
        assert_eq!(amount(&batch), (2.0, 4.0));
    }
}
