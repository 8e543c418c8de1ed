//! Root-mean-square normalisation.

use tch::{Kind, Tensor};

use super::{Factory, Forward, Init, Member, MemberMut, Module, ModuleState, Parameter, init};
use crate::Result;

/// Normalises the last dimension by its root mean square: `y = x / √(mean(x²) + eps) · weight`.
///
/// The mean is taken in float32, whatever the type of the input. Initialised with weight 1.
///
/// # Shapes
/// - `weight`: `[width]`
/// - input and output: `[.., width]`
///
/// # Source
/// `LlamaRMSNorm` of `transformers`, which every model with such a layer repeats under a name of
/// its own. Differs: [`with_class_name`](Self::with_class_name) gives the name. In half
/// precision it rounds before the weight is applied, as there; `torch.nn.RMSNorm` rounds after.
#[derive(Debug, Clone)]
pub struct RmsNorm {
    /// The scale of each value.
    pub weight: Parameter,
    eps: f64,
    class: &'static str,
    state: ModuleState,
}

impl RmsNorm {
    /// Normalises vectors of this width.
    ///
    /// # Errors
    /// If the width is negative or memory is short.
    pub fn new(width: i64, eps: f64, factory: &Factory) -> Result<Self> {
        let weight = factory.empty(&[width])?;
        if factory.init() != Init::Skip {
            init::constant(&weight, 1.0)?;
        }
        Ok(Self {
            weight: Parameter::new(weight)?,
            eps,
            class: "RMSNorm",
            state: ModuleState::default(),
        })
    }

    /// The same layer under the class name that a model has for it, such as `LlamaRMSNorm`.
    #[must_use]
    pub fn with_class_name(self, class: &'static str) -> Self {
        Self { class, ..self }
    }
}

impl Module for RmsNorm {
    fn class_name(&self) -> &'static str {
        self.class
    }

    fn state(&self) -> Option<&ModuleState> {
        Some(&self.state)
    }

    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        visit("weight", Member::Parameter(&self.weight));
    }

    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        visit("weight", MemberMut::Parameter(&mut self.weight));
    }
}

impl Forward for RmsNorm {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let kind = input.f_kind()?;
        let wide = input.f_to_kind(Kind::Float)?;
        let mean = wide
            .f_square()?
            .f_mean_dim(Some([-1i64].as_slice()), true, None)?;
        let normed = wide.f_mul(&mean.f_add_scalar(self.eps)?.f_rsqrt()?)?;
        Ok(self.weight.dense()?.f_mul(&normed.f_to_kind(kind)?)?)
    }
}
