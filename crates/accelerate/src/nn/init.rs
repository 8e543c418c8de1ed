//! First values of parameters, drawn from libtorch's own generator as PyTorch draws them.
//!
//! With the same seed, the same layers made in the same order have the same values in both.
//! A fresh parameter can be given, trained or not: nothing is recorded for gradients.

use tch::Tensor;

use crate::{Error, Result};

/// Which first values a [`Factory`](super::Factory) gives to parameters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum Init {
    /// What each layer's own documentation says; PyTorch's default.
    #[default]
    Layer,
    /// Weights of linear and embedding layers from a normal distribution, biases and padding
    /// rows zero, normalisation layers neutral: what transformer models are trained from.
    Normal {
        /// The standard deviation.
        std: f64,
    },
    /// None: the memory is left as it is, to be filled from a checkpoint. Draws no random numbers.
    Skip,
}

/// Fills with draws from the uniform distribution over `low..high`.
///
/// # Errors
/// If `low` is larger than `high`, or the values are no floating-point numbers.
pub fn uniform(tensor: &Tensor, low: f64, high: f64) -> Result<()> {
    let _same = tch::no_grad(|| tensor.shallow_clone().f_uniform_(low, high))?;
    Ok(())
}

/// Fills with draws from the normal distribution.
///
/// # Errors
/// If `std` is negative, or the values are no floating-point numbers.
pub fn normal(tensor: &Tensor, mean: f64, std: f64) -> Result<()> {
    let _same = tch::no_grad(|| tensor.shallow_clone().f_normal_(mean, std))?;
    Ok(())
}

/// Fills with one value.
///
/// # Errors
/// If the value does not fit the type.
pub fn constant(tensor: &Tensor, value: f64) -> Result<()> {
    let _same = tch::no_grad(|| tensor.shallow_clone().f_fill_(value))?;
    Ok(())
}

/// Fills the row `row` with zeros.
///
/// # Errors
/// If there is no such row.
pub fn zero_row(tensor: &Tensor, row: i64) -> Result<()> {
    let _same = tch::no_grad(|| tensor.f_select(0, row)?.f_fill_(0.0))?;
    Ok(())
}

/// Kaiming's uniform distribution for a leaky rectifier of slope `a`: within
/// `± sqrt(6 / ((1 + a²) · fan_in))`.
///
/// # Shapes
/// `[out, in, ..]`: the fan-in is the number of values behind each output.
///
/// # Errors
/// [`Error::Argument`] for a tensor of fewer than two dimensions.
///
/// # Source
/// `torch.nn.init.kaiming_uniform_` with its defaults.
pub fn kaiming_uniform(tensor: &Tensor, a: f64) -> Result<()> {
    // Step by step as PyTorch computes it, so that the bound is the same to the last bit.
    let gain = (2.0 / (1.0 + a * a)).sqrt();
    let std = gain / (fan_in(tensor)? as f64).sqrt();
    let bound = 3.0_f64.sqrt() * std;
    uniform(tensor, -bound, bound)
}

/// The number of input values behind each output of a weight `[out, in, ..]`.
///
/// # Errors
/// [`Error::Argument`] for a tensor of fewer than two dimensions.
pub fn fan_in(tensor: &Tensor) -> Result<i64> {
    match tensor.size().as_slice() {
        [_, inputs @ ..] if !inputs.is_empty() => Ok(inputs.iter().product()),
        shape => Err(Error::Argument {
            operation: "fan_in",
            expected: "a weight of at least two dimensions".to_owned(),
            found: format!("the shape {shape:?}"),
        }),
    }
}
