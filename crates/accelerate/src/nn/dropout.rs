//! Dropout.

use accelerate_plan::config::python_float;
use tch::Tensor;

use super::{Forward, Module, ModuleState};
use crate::{Error, Result};

/// Sets each value to zero with probability `p` and scales the others by `1 / (1 - p)`.
///
/// In evaluation mode, or with `p = 0`, the input passes unchanged.
///
/// # Shapes
/// Any; the output has the input's.
///
/// # Source
/// `torch.nn.Dropout`, with the same draws from libtorch's generator.
#[derive(Debug, Clone, Module)]
#[module(extra_repr = Self::sizes)]
pub struct Dropout {
    #[module(skip)]
    p: f64,
    state: ModuleState,
}

impl Dropout {
    /// Drops with probability `p`.
    ///
    /// # Errors
    /// [`Error::Argument`] where `p` is no probability.
    pub fn new(p: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::Argument {
                operation: "Dropout::new",
                expected: "a probability within 0..=1".to_owned(),
                found: p.to_string(),
            });
        }
        Ok(Self {
            p,
            state: ModuleState::default(),
        })
    }

    fn sizes(&self) -> String {
        format!("p={}, inplace=False", python_float(self.p))
    }

    /// The probability that counts now: `p` in training mode, else 0.
    pub fn active_probability(&self) -> f64 {
        if self.state.is_training() {
            self.p
        } else {
            0.0
        }
    }
}

impl Forward for Dropout {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        Ok(input.f_dropout(self.p, self.state.is_training())?)
    }
}
