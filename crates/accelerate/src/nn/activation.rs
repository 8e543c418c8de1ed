//! Activation functions.

use std::fmt;
use std::str::FromStr;

use tch::Tensor;

use super::shape_only::is_shape_only;
use super::{Forward, Member, MemberMut, Module, ModuleState};
use crate::Result;

/// A function applied to each value, under the names that public configurations use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ActivationFunction {
    /// `x · Φ(x)` with the exact normal distribution function Φ: `gelu`.
    Gelu,
    /// `x · Φ(x)` with Φ approximated through tanh, in one kernel: `gelu_pytorch_tanh`.
    GeluTanh,
    /// The same approximation, computed step by step as the first GPT-2 did: `gelu_new`.
    GeluNew,
    /// `max(x, 0)`: `relu`.
    Relu,
    /// `x · sigmoid(x)`: `silu` or `swish`.
    Silu,
    /// `tanh(x)`: `tanh`.
    Tanh,
    /// `1 / (1 + exp(-x))`: `sigmoid`.
    Sigmoid,
}

impl ActivationFunction {
    /// Every function, in declaration order.
    pub const ALL: [Self; 7] = [
        Self::Gelu,
        Self::GeluTanh,
        Self::GeluNew,
        Self::Relu,
        Self::Silu,
        Self::Tanh,
        Self::Sigmoid,
    ];

    /// The name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_pytorch_tanh",
            Self::GeluNew => "gelu_new",
            Self::Relu => "relu",
            Self::Silu => "silu",
            Self::Tanh => "tanh",
            Self::Sigmoid => "sigmoid",
        }
    }

    /// The class that the original's module tree shows for it.
    pub const fn class_name(self) -> &'static str {
        match self {
            Self::Gelu => "GELUActivation",
            Self::GeluTanh => "GELUTanh",
            Self::GeluNew => "NewGELUActivation",
            Self::Relu => "ReLU",
            Self::Silu => "SiLUActivation",
            Self::Tanh => "Tanh",
            Self::Sigmoid => "Sigmoid",
        }
    }

    /// Applies the function to each value.
    ///
    /// # Errors
    /// If the values are no floating-point numbers.
    pub fn apply(self, input: &Tensor) -> Result<Tensor> {
        Ok(match self {
            Self::Gelu => input.f_gelu("none")?,
            Self::GeluTanh => input.f_gelu("tanh")?,
            Self::GeluNew => gelu_new(input)?,
            // libtorch's own `relu` needs values.
            Self::Relu if is_shape_only(input)? => input.f_clamp_min(0)?,
            Self::Relu => input.f_relu()?,
            Self::Silu => input.f_silu()?,
            Self::Tanh => input.f_tanh()?,
            Self::Sigmoid => input.f_sigmoid()?,
        })
    }
}

/// `0.5 · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))`, in the original's order of operations.
fn gelu_new(input: &Tensor) -> Result<Tensor> {
    let cube = input.f_pow_tensor_scalar(3.0)?;
    let inner = input.f_add(&cube.f_mul_scalar(0.044715)?)?;
    let scaled = inner.f_mul_scalar((2.0 / std::f64::consts::PI).sqrt())?;
    Ok(input
        .f_mul_scalar(0.5)?
        .f_mul(&scaled.f_tanh()?.f_add_scalar(1.0)?)?)
}

impl fmt::Display for ActivationFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ActivationFunction {
    type Err = UnknownActivation;

    fn from_str(name: &str) -> Result<Self, UnknownActivation> {
        let name = if name == "swish" { "silu" } else { name };
        let known = Self::ALL
            .into_iter()
            .find(|function| function.name() == name);
        known.ok_or_else(|| UnknownActivation {
            found: name.to_owned(),
        })
    }
}

/// A name that is no [`ActivationFunction`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown activation `{found}`, expected one of {}", known_names())]
#[non_exhaustive]
pub struct UnknownActivation {
    /// What stood where a name was expected.
    pub found: String,
}

fn known_names() -> String {
    ActivationFunction::ALL
        .map(|function| format!("`{function}`"))
        .join(", ")
}

/// A layer that applies an [`ActivationFunction`]; its class is that of the function.
///
/// # Shapes
/// Any; the output has the input's.
#[derive(Debug, Clone)]
pub struct Activation {
    function: ActivationFunction,
    state: ModuleState,
}

impl Activation {
    /// A layer that applies `function`.
    pub fn new(function: ActivationFunction) -> Self {
        Self {
            function,
            state: ModuleState::default(),
        }
    }

    /// The function.
    pub fn function(&self) -> ActivationFunction {
        self.function
    }
}

impl Module for Activation {
    fn class_name(&self) -> &'static str {
        self.function.class_name()
    }

    fn state(&self) -> Option<&ModuleState> {
        Some(&self.state)
    }

    fn members<'m>(&'m self, _visit: &mut dyn FnMut(&str, Member<'m>)) {}

    fn members_mut<'m>(&'m mut self, _visit: &mut dyn FnMut(&str, MemberMut<'m>)) {}
}

impl Forward for Activation {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        self.function.apply(&input)
    }
}
