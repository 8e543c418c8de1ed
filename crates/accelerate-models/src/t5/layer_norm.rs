//! T5's normalisation.

use accelerate::Result;
use accelerate::nn::{Factory, Forward, Init, Module, ModuleState, Parameter, init};
use tch::{Kind, Tensor};

/// Divides by the root of the mean square: `y = x / √(mean(x²) + eps) · weight`.
///
/// The mean is computed in float32 whatever the type of the input.
///
/// # Shapes
/// - `weight`: `[width]`
/// - input and output: `[.., width]`
#[derive(Debug, Clone, Module)]
pub struct T5LayerNorm {
    weight: Parameter,
    #[module(skip)]
    eps: f64,
    state: ModuleState,
}

impl T5LayerNorm {
    pub(super) fn new(width: i64, eps: f64, factory: &Factory) -> Result<Self> {
        let weight = factory.empty(&[width])?;
        if factory.init() != Init::Skip {
            init::constant(&weight, 1.0)?;
        }
        Ok(Self {
            weight: Parameter::new(weight)?,
            eps,
            state: ModuleState::default(),
        })
    }
}

impl Forward for T5LayerNorm {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let weight = self.weight.dense()?;
        let square = input
            .f_to_kind(Kind::Float)?
            .f_pow_tensor_scalar(2)?
            .f_mean_dim(-1, true, None::<Kind>)?;
        let normed = input.f_mul(&square.f_add_scalar(self.eps)?.f_rsqrt()?)?;
        let kind = weight.f_kind()?;
        let normed = if matches!(kind, Kind::Half | Kind::BFloat16) {
            normed.f_to_kind(kind)?
        } else {
            normed
        };
        Ok(weight.f_mul(&normed)?)
    }
}
