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

/// Kaiming's normal distribution for a rectifier, by the number of values that each input goes
/// to: a standard deviation of `sqrt(2 / fan_out)`.
///
/// # Shapes
/// `[out, in, ..]`: the fan-out is the number of outputs times the size of the kernel.
///
/// # Errors
/// [`Error::Argument`] for a tensor of fewer than two dimensions.
///
/// # Source
/// `torch.nn.init.kaiming_normal_` with `mode="fan_out"` and `nonlinearity="relu"`.
pub fn kaiming_normal_fan_out(tensor: &Tensor) -> Result<()> {
    let fan_out = match tensor.size().as_slice() {
        [outputs, _, kernel @ ..] => outputs * kernel.iter().product::<i64>(),
        _ => fan_in(tensor)?,
    };
    normal(tensor, 0.0, 2.0_f64.sqrt() / (fan_out as f64).sqrt())
}

/// The normal distribution without what lies outside of `low..=high`, which is drawn again.
///
/// # Errors
/// [`Error::Argument`] if the range does not reach half a standard deviation to both sides of the
/// mean, and so most draws would be in vain.
///
/// # Source
/// `torch.nn.init.trunc_normal_`, with the same draws where it redraws too.
pub fn truncated_normal(tensor: &Tensor, mean: f64, std: f64, low: f64, high: f64) -> Result<()> {
    if !(low <= mean - std / 2.0 && mean + std / 2.0 <= high) {
        return Err(Error::Argument {
            operation: "truncated_normal",
            expected: format!("a range around {mean} of half of {std} or more to both sides"),
            found: format!("{low}..={high}"),
        });
    }
    normal(tensor, mean, std)?;
    if accelerate_torch::meta::is_meta(tensor)? {
        return Ok(());
    }
    tch::no_grad(|| {
        loop {
            let outside = tensor.f_lt(low)?.f_logical_or(&tensor.f_gt(high)?)?;
            if outside.f_any()?.f_int64_value(&[])? == 0 {
                return Ok(());
            }
            let again = tensor.f_empty_like()?;
            normal(&again, mean, std)?;
            tensor
                .shallow_clone()
                .f_copy_(&again.f_where_self(&outside, tensor)?)?;
        }
    })
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
