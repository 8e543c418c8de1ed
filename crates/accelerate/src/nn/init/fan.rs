//! First values by the number of values that meet in each output.

use tch::Tensor;

use super::{normal, uniform};
use crate::{Error, Result};

/// Which way values are to keep their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fan {
    /// Forward: by the number of inputs of each output.
    #[default]
    In,
    /// Backward: by the number of outputs of each input.
    Out,
}

impl Fan {
    /// The number of values in this direction.
    fn of(self, tensor: &Tensor) -> Result<i64> {
        match self {
            Self::In => fan_in(tensor),
            Self::Out => fan_out(tensor),
        }
    }
}

/// What values pass through after a layer; it changes their size by its [gain](Self::gain).
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Nonlinearity {
    /// Nothing: linear layers and convolutions.
    Linear,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `tanh(x)`.
    Tanh,
    /// `max(x, 0)`.
    Relu,
    /// `x` above zero and `slope · x` below.
    LeakyRelu {
        /// The slope below zero; PyTorch's usual one is 0.01.
        slope: f64,
    },
    /// The self-normalising exponential unit.
    Selu,
}

impl Nonlinearity {
    /// The factor that makes up for what the function takes from the size of values.
    ///
    /// # Source
    /// `torch.nn.init.calculate_gain`.
    pub fn gain(self) -> f64 {
        match self {
            Self::Linear | Self::Sigmoid => 1.0,
            Self::Tanh => 5.0 / 3.0,
            Self::Relu => 2.0_f64.sqrt(),
            Self::LeakyRelu { slope } => (2.0 / (1.0 + slope * slope)).sqrt(),
            Self::Selu => 3.0 / 4.0,
        }
    }
}

/// Xavier's uniform distribution: within `± gain · sqrt(6 / (fan_in + fan_out))`.
///
/// # Shapes
/// `[out, in, ..]`
///
/// # Errors
/// [`Error::Argument`] for a tensor of fewer than two dimensions.
///
/// # Source
/// `torch.nn.init.xavier_uniform_`.
pub fn xavier_uniform(tensor: &Tensor, gain: f64) -> Result<()> {
    let bound = 3.0_f64.sqrt() * xavier_std(tensor, gain)?;
    uniform(tensor, -bound, bound)
}

/// Xavier's normal distribution, of standard deviation `gain · sqrt(2 / (fan_in + fan_out))`.
///
/// # Shapes
/// `[out, in, ..]`
///
/// # Errors
/// [`Error::Argument`] for a tensor of fewer than two dimensions.
///
/// # Source
/// `torch.nn.init.xavier_normal_`.
pub fn xavier_normal(tensor: &Tensor, gain: f64) -> Result<()> {
    let std = xavier_std(tensor, gain)?;
    normal(tensor, 0.0, std)
}

// Step by step as PyTorch computes it, here and below, so that bounds are the same to the last bit.
fn xavier_std(tensor: &Tensor, gain: f64) -> Result<f64> {
    let both = fan_in(tensor)? + fan_out(tensor)?;
    Ok(gain * (2.0 / both as f64).sqrt())
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
    kaiming_uniform_for(tensor, Fan::In, Nonlinearity::LeakyRelu { slope: a })
}

/// Kaiming's uniform distribution: within `± gain · sqrt(3 / fan)`.
///
/// # Shapes
/// `[out, in, ..]`; a tensor without values is left as it is.
///
/// # Errors
/// [`Error::Argument`] for a tensor of fewer than two dimensions.
///
/// # Source
/// `torch.nn.init.kaiming_uniform_`.
pub fn kaiming_uniform_for(tensor: &Tensor, fan: Fan, nonlinearity: Nonlinearity) -> Result<()> {
    if tensor.numel() == 0 {
        return Ok(());
    }
    let std = nonlinearity.gain() / (fan.of(tensor)? as f64).sqrt();
    let bound = 3.0_f64.sqrt() * std;
    uniform(tensor, -bound, bound)
}

/// Kaiming's normal distribution, of standard deviation `gain / sqrt(fan)`.
///
/// # Shapes
/// `[out, in, ..]`; a tensor without values is left as it is.
///
/// # Errors
/// [`Error::Argument`] for a tensor of fewer than two dimensions.
///
/// # Source
/// `torch.nn.init.kaiming_normal_`.
pub fn kaiming_normal_for(tensor: &Tensor, fan: Fan, nonlinearity: Nonlinearity) -> Result<()> {
    if tensor.numel() == 0 {
        return Ok(());
    }
    let std = nonlinearity.gain() / (fan.of(tensor)? as f64).sqrt();
    normal(tensor, 0.0, std)
}

/// The number of input values behind each output of a weight `[out, in, ..]`.
///
/// # Errors
/// [`Error::Argument`] for a tensor of fewer than two dimensions.
pub fn fan_in(tensor: &Tensor) -> Result<i64> {
    match tensor.size().as_slice() {
        [_, inputs @ ..] if !inputs.is_empty() => Ok(inputs.iter().product()),
        shape => Err(too_flat("fan_in", shape)),
    }
}

/// The number of output values that each input of a weight `[out, in, ..]` reaches.
///
/// # Errors
/// [`Error::Argument`] for a tensor of fewer than two dimensions.
pub fn fan_out(tensor: &Tensor) -> Result<i64> {
    match tensor.size().as_slice() {
        [outputs, _, field @ ..] => Ok(outputs * field.iter().product::<i64>()),
        shape => Err(too_flat("fan_out", shape)),
    }
}

fn too_flat(operation: &'static str, shape: &[i64]) -> Error {
    Error::Argument {
        operation,
        expected: "a weight of at least two dimensions".to_owned(),
        found: format!("the shape {shape:?}"),
    }
}
