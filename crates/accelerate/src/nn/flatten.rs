//! Several dimensions as one.

use tch::Tensor;

use super::{Forward, Module, ModuleState};
use crate::Result;

/// Makes one dimension of the dimensions `start_dim..=end_dim`; by default of all but the first.
///
/// # Shapes
/// `[batch, a, b, ..]` to `[batch, a · b · ..]` by default.
///
/// # Source
/// `torch.nn.Flatten`.
#[derive(Debug, Clone, Module)]
pub struct Flatten {
    #[module(skip)]
    start_dim: i64,
    #[module(skip)]
    end_dim: i64,
    state: ModuleState,
}

impl Flatten {
    /// Joins these dimensions; a negative one counts from behind.
    pub fn new(start_dim: i64, end_dim: i64) -> Self {
        Self {
            start_dim,
            end_dim,
            state: ModuleState::default(),
        }
    }
}

impl Default for Flatten {
    fn default() -> Self {
        Self::new(1, -1)
    }
}

impl Forward for Flatten {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        Ok(input.f_flatten(self.start_dim, self.end_dim)?)
    }
}
