use super::group::ParamGroups;
use super::optimizer::Optimizer;
use super::state_dict::StateDict;
use crate::Result;
use crate::gradient_state::GradientState;

/// An optimizer that steps only when gradients are complete.
///
/// While gradients are accumulated, [`step`](Optimizer::step) and
/// [`zero_grad`](Optimizer::zero_grad) do nothing, so a loop needs no conditions.
///
/// # Source
/// `accelerate.optimizer.AcceleratedOptimizer`.
#[derive(Debug)]
pub struct AcceleratedOptimizer<O> {
    inner: O,
    gradient_state: GradientState,
}

impl<O: Optimizer> AcceleratedOptimizer<O> {
    /// Makes `inner` follow `gradient_state`.
    pub fn new(inner: O, gradient_state: GradientState) -> Self {
        Self {
            inner,
            gradient_state,
        }
    }

    /// Whether the last step was skipped because gradients were not finite.
    pub fn step_was_skipped(&self) -> bool {
        self.learning_rates().was_skipped()
    }

    /// The optimizer as it was before.
    pub fn inner(&self) -> &O {
        &self.inner
    }

    /// As [`inner`](Self::inner), for changes.
    pub fn inner_mut(&mut self) -> &mut O {
        &mut self.inner
    }

    /// The optimizer as it was before.
    pub fn into_inner(self) -> O {
        self.inner
    }
}

impl<O: Optimizer> Optimizer for AcceleratedOptimizer<O> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn groups(&self) -> &ParamGroups {
        self.inner.groups()
    }

    fn step(&mut self) -> Result<()> {
        if self.gradient_state.sync_gradients() {
            self.inner.step()
        } else {
            Ok(())
        }
    }

    fn zero_grad(&mut self) -> Result<()> {
        if self.gradient_state.sync_gradients() {
            self.inner.zero_grad()
        } else {
            Ok(())
        }
    }

    fn zero_grad_in_place(&mut self) -> Result<()> {
        if self.gradient_state.sync_gradients() {
            self.inner.zero_grad_in_place()
        } else {
            Ok(())
        }
    }

    fn state_dict(&self) -> Result<StateDict> {
        self.inner.state_dict()
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        self.inner.load_state_dict(state)
    }
}
