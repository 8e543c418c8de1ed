//! Layers of one type, one after the other.

use tch::Tensor;

use super::{Forward, Member, MemberMut, Module, ModuleState};
use crate::Result;

/// A [`Sequential`](super::Sequential) of one type, which stays known: runs its layers in order; they are named `0`, `1`, and so on.
///
/// For layers of several types there is [`Sequential`](super::Sequential).
///
/// # Shapes
/// The input of the first layer, the output of the last one.
///
/// # Source
/// `torch.nn.Sequential`. Differs: its layers have one type.
#[derive(Debug, Clone)]
pub struct SequentialOf<M> {
    layers: Vec<M>,
    state: ModuleState,
}

impl<M> SequentialOf<M> {
    /// Runs these layers.
    pub fn new(layers: Vec<M>) -> Self {
        Self {
            layers,
            state: ModuleState::default(),
        }
    }

    /// The layers.
    pub fn layers(&self) -> &[M] {
        &self.layers
    }
}

impl<M> FromIterator<M> for SequentialOf<M> {
    fn from_iter<I: IntoIterator<Item = M>>(layers: I) -> Self {
        Self::new(layers.into_iter().collect())
    }
}

impl<M: Module> Module for SequentialOf<M> {
    fn class_name(&self) -> &'static str {
        "Sequential"
    }

    fn state(&self) -> Option<&ModuleState> {
        Some(&self.state)
    }

    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        self.layers.members(visit);
    }

    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        self.layers.members_mut(visit);
    }
}

impl<M: Forward<Input = Tensor, Output = Tensor>> Forward for SequentialOf<M> {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        self.layers
            .iter()
            .try_fold(input, |hidden, layer| layer.call(hidden))
    }
}
