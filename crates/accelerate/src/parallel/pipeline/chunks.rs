//! A batch in parts, and the outputs in one.

use tch::Tensor;

use crate::state::Share;
use crate::tree::{Parcel, Part, Tree, concatenate};
use crate::{Error, Result};

const OPERATION: &str = "pipeline";

/// At most so many parts of a batch, as even as they can be; the first ones have a row more.
///
/// Rows are those of the first tensor that has any. Tensors of one row, scalars, and what is no
/// tensor go with every part.
///
/// # Source
/// The padding of `prepare_pippy`. Differs: parts may differ by a row, so nothing is computed and
/// returned that nobody asked for.
pub(super) fn cut(batch: Parcel, parts: usize) -> Result<Vec<Parcel>> {
    let rows = batch.parts().find_map(|part| match part {
        Part::Tensor(tensor) => rows_of(tensor),
        _ => None,
    });
    let rows = rows.ok_or_else(|| Error::Argument {
        operation: OPERATION,
        expected: "an input with a tensor that has rows".to_owned(),
        found: "none".to_owned(),
    })?;
    let parts = parts.min(rows).max(1);
    if parts == 1 {
        return Ok(vec![batch]);
    }
    (0..parts)
        .map(|part| {
            let share = Share::new(rows, parts, part, false).range();
            let mut chunk = Parcel::default();
            for part in batch.parts() {
                chunk.push(match part {
                    Part::Tensor(tensor) => {
                        Part::Tensor(cut_tensor(tensor, rows, (share.start, share.len()))?)
                    }
                    Part::Rows(values) if values.len() == rows => {
                        Part::Rows(values.get(share.clone()).unwrap_or_default().to_vec())
                    }
                    Part::Rows(values) => Part::Rows(values.clone()),
                    Part::Plain(value) => Part::Plain(value.clone()),
                    Part::Count(count) => Part::Count(*count),
                });
            }
            Ok(chunk)
        })
        .collect()
}

fn rows_of(tensor: &Tensor) -> Option<usize> {
    let first = tensor.size().first().copied()?;
    usize::try_from(first).ok()
}

fn cut_tensor(tensor: &Tensor, rows: usize, (start, length): (usize, usize)) -> Result<Tensor> {
    match rows_of(tensor) {
        Some(own) if own == rows => {
            let start = i64::try_from(start).map_err(Error::data)?;
            let length = i64::try_from(length).map_err(Error::data)?;
            Ok(tensor.f_narrow(0, start, length)?)
        }
        None | Some(1) => Ok(tensor.shallow_clone()),
        Some(_) => Err(Error::Argument {
            operation: OPERATION,
            expected: format!(
                "{rows} rows in every tensor of an input, as in its first, or one for all"
            ),
            found: format!("the shape {:?}", tensor.size()),
        }),
    }
}

/// The outputs for all parts of a batch as one.
pub(super) fn join<T: Tree>(mut outputs: Vec<T>) -> Result<T> {
    if outputs.len() == 1 {
        return Ok(outputs.swap_remove(0));
    }
    for output in &outputs {
        output.visit(&mut |tensor| match tensor.dim() {
            0 => Err(Error::Argument {
                operation: OPERATION,
                expected: "outputs with a row for each sample, which can be joined; or one chunk"
                    .to_owned(),
                found: "a scalar, such as a loss, for each chunk".to_owned(),
            }),
            _ => Ok(()),
        })?;
    }
    concatenate(outputs, 0)
}
