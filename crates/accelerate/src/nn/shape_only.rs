//! Outputs of layers that libtorch does not compute without values.

#[cfg(test)]
mod tests;

use accelerate_torch::meta;
use tch::Tensor;

use crate::{Error, Result};

/// The output of a layer for an input without values: a shape, and the type of the input.
pub(super) fn shape_only(shape: &[i64], input: &Tensor) -> Result<Tensor> {
    Ok(meta::empty(shape, input.f_kind()?)?)
}

/// Whether a layer is asked for the shape of its output only.
pub(super) fn is_shape_only(input: &Tensor) -> Result<bool> {
    Ok(meta::is_meta(input)?)
}

/// The shape of the input, whose last sizes have to be `end`.
pub(super) fn ending_with(layer: &'static str, input: &Tensor, end: &[i64]) -> Result<Vec<i64>> {
    let size = input.size();
    if size.ends_with(end) {
        return Ok(size);
    }
    Err(Error::Argument {
        operation: layer,
        expected: format!("an input whose shape ends with {end:?}"),
        found: format!("{size:?}"),
    })
}
