//! The layer that changes nothing.

use tch::Tensor;

use super::{Forward, Module, ModuleState};
use crate::Result;

/// Gives back what it is given: for the place of a layer that a model leaves out.
///
/// # Shapes
/// Any; the output has the input's.
///
/// # Source
/// `torch.nn.Identity`.
#[derive(Debug, Clone, Default, Module)]
pub struct Identity {
    state: ModuleState,
}

impl Identity {
    /// The layer.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Forward for Identity {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        Ok(input)
    }
}
