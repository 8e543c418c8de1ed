//! The linear layer.

use tch::Tensor;

use super::{Factory, Forward, Init, Module, ModuleState, Parameter, init};
use crate::Result;

/// A linear map with an offset: `y = x · weightᵀ + bias`.
///
/// Initialised by Kaiming's uniform distribution with `a = √5`, which draws the weight and then
/// the bias from `± 1 / √in`.
///
/// # Shapes
/// - `weight`: `[out, in]`, `bias`: `[out]`
/// - input: `[.., in]`, output: `[.., out]`
///
/// # Source
/// `torch.nn.Linear`.
#[derive(Debug, Clone, Module)]
#[module(extra_repr = Self::sizes)]
pub struct Linear {
    /// The map.
    pub weight: Parameter,
    /// The offset, where there is one.
    pub bias: Option<Parameter>,
    state: ModuleState,
}

impl Linear {
    /// A layer with an offset.
    ///
    /// # Errors
    /// If a size is negative or memory is short.
    pub fn new(in_features: i64, out_features: i64, factory: &Factory) -> Result<Self> {
        let mut layer = Self::without_bias(in_features, out_features, factory)?;
        let bias = factory.empty(&[out_features])?;
        match factory.init() {
            Init::Layer => {
                let bound = if in_features > 0 {
                    1.0 / (in_features as f64).sqrt()
                } else {
                    0.0
                };
                init::uniform(&bias, -bound, bound)?;
            }
            Init::Normal { .. } => init::constant(&bias, 0.0)?,
            Init::Skip => {}
        }
        layer.bias = Some(Parameter::new(bias)?);
        Ok(layer)
    }

    /// A layer without an offset.
    ///
    /// # Errors
    /// If a size is negative or memory is short.
    pub fn without_bias(in_features: i64, out_features: i64, factory: &Factory) -> Result<Self> {
        let weight = factory.empty(&[out_features, in_features])?;
        match factory.init() {
            Init::Layer => init::kaiming_uniform(&weight, 5.0_f64.sqrt())?,
            Init::Normal { std } => init::normal(&weight, 0.0, std)?,
            Init::Skip => {}
        }
        Ok(Self {
            weight: Parameter::new(weight)?,
            bias: None,
            state: ModuleState::default(),
        })
    }
}

impl Linear {
    fn sizes(&self) -> String {
        let bias = if self.bias.is_some() { "True" } else { "False" };
        match self.weight.shape().as_slice() {
            [output, input] => format!("in_features={input}, out_features={output}, bias={bias}"),
            shape => format!("weight={shape:?}, bias={bias}"),
        }
    }
}

impl Forward for Linear {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        self.weight.linear(&input, self.bias.as_ref())
    }
}
