//! Layer normalisation.

use accelerate_plan::config::python_float;
use tch::Tensor;

use super::shape_only::{ending_with, is_shape_only, shape_only};
use super::{Factory, Forward, Init, Module, ModuleState, Parameter, init};
use crate::Result;

/// Normalises the last dimension: `y = (x - mean) / √(variance + eps) · weight + bias`.
///
/// The variance divides by the number of values. Initialised with weight 1 and bias 0.
///
/// # Shapes
/// - `weight`, `bias`: `[width]`
/// - input and output: `[.., width]`
///
/// # Source
/// `torch.nn.LayerNorm` over one dimension.
#[derive(Debug, Clone, Module)]
#[module(extra_repr = Self::sizes)]
pub struct LayerNorm {
    /// The scale of each value.
    pub weight: Parameter,
    /// The offset of each value, where there is one.
    pub bias: Option<Parameter>,
    #[module(skip)]
    eps: f64,
    state: ModuleState,
}

impl LayerNorm {
    /// Normalises vectors of this width; PyTorch's usual `eps` is `1e-5`.
    ///
    /// # Errors
    /// If the width is negative or memory is short.
    pub fn new(width: i64, eps: f64, factory: &Factory) -> Result<Self> {
        let (weight, bias) = (factory.empty(&[width])?, factory.empty(&[width])?);
        if factory.init() != Init::Skip {
            init::constant(&weight, 1.0)?;
            init::constant(&bias, 0.0)?;
        }
        let (weight, bias) = (Parameter::new(weight)?, Some(Parameter::new(bias)?));
        Ok(Self {
            weight,
            bias,
            eps,
            state: ModuleState::default(),
        })
    }
}

impl LayerNorm {
    fn sizes(&self) -> String {
        let width: Vec<String> = self.weight.shape().iter().map(i64::to_string).collect();
        let bias = if self.bias.is_some() { "True" } else { "False" };
        format!(
            "({},), eps={}, elementwise_affine=True, bias={bias}",
            width.join(", "),
            python_float(self.eps)
        )
    }
}

impl Forward for LayerNorm {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let weight = self.weight.dense()?;
        let bias = self.bias.as_ref().map(Parameter::dense).transpose()?;
        let shape = self.weight.shape();
        if is_shape_only(&input)? {
            return shape_only(&ending_with("LayerNorm", &input, &shape)?, &input);
        }
        Ok(input.f_layer_norm(shape, Some(&weight), bias.as_ref(), self.eps, true)?)
    }
}
