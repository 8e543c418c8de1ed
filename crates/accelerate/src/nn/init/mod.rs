//! First values of parameters, drawn from libtorch's own generator as PyTorch draws them.
//!
//! With the same seed, the same layers made in the same order have the same values in both.
//! A fresh parameter can be given, trained or not: nothing is recorded for gradients. A tensor on
//! the meta device is left as it is, and draws no numbers.
//!
//! | function | values |
//! | --- | --- |
//! | [`constant`], [`zeros`], [`ones`], [`zero_row`] | the same everywhere |
//! | [`eye`], [`dirac`] | layers that pass their input on |
//! | [`uniform`], [`normal`], [`trunc_normal`] | drawn from a distribution |
//! | [`xavier_uniform`], [`xavier_normal`] | drawn so that values keep their size both ways |
//! | [`kaiming_uniform`], [`kaiming_uniform_for`], [`kaiming_normal_for`] | drawn so that values keep their size one way, through a [`Nonlinearity`] |
//! | [`orthogonal`], [`sparse`] | matrices of a special form |

mod fan;
mod patterns;
mod trunc_normal;

use tch::Tensor;

use crate::Result;

pub use self::fan::{
    Fan, Nonlinearity, fan_in, fan_out, kaiming_normal_for, kaiming_uniform, kaiming_uniform_for,
    xavier_normal, xavier_uniform,
};
pub use self::patterns::{dirac, eye, orthogonal, sparse};
pub use self::trunc_normal::trunc_normal;

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

/// Fills with zeros.
///
/// # Errors
/// None that is known.
pub fn zeros(tensor: &Tensor) -> Result<()> {
    constant(tensor, 0.0)
}

/// Fills with ones.
///
/// # Errors
/// None that is known.
pub fn ones(tensor: &Tensor) -> Result<()> {
    constant(tensor, 1.0)
}

/// Fills the row `row` with zeros.
///
/// # Errors
/// If there is no such row.
pub fn zero_row(tensor: &Tensor, row: i64) -> Result<()> {
    let _same = tch::no_grad(|| tensor.f_select(0, row)?.f_fill_(0.0))?;
    Ok(())
}
