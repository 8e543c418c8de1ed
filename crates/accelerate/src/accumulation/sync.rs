//! Guards that turn the exchange of gradients off, and on again for one backward pass.

use super::models::{ModelGradients, Models, handles};
use crate::Result;
use crate::parallel::Strategy;

/// Keeps the gradients of some models on this rank until it is dropped.
///
/// Forward and backward pass both belong inside.
#[derive(Debug)]
#[must_use = "gradients are exchanged again as soon as this is dropped"]
pub struct NoSync {
    /// What was switched, with how it was before.
    switched: Vec<(Strategy, bool)>,
}

impl NoSync {
    pub(crate) fn new(models: &(impl Models + ?Sized)) -> Self {
        Self::over(&handles(models))
    }

    pub(super) fn over(models: &[ModelGradients]) -> Self {
        let switched = models
            .iter()
            .filter_map(ModelGradients::strategy)
            .map(|one| (one.clone(), one.set_sync_gradients(false)))
            .collect();
        Self { switched }
    }
}

impl Drop for NoSync {
    fn drop(&mut self) {
        for (one, before) in self.switched.iter().rev() {
            one.set_sync_gradients(*before);
        }
    }
}

/// Lets the next backward pass exchange everything that was accumulated, until it is dropped.
#[derive(Debug)]
#[must_use = "the backward pass that exchanges gradients must run before this is dropped"]
pub struct LateSync {
    switched: Vec<(Strategy, bool)>,
}

/// See [`Accelerator::trigger_sync_in_backward`](crate::Accelerator::trigger_sync_in_backward).
pub(crate) fn trigger(models: &(impl Models + ?Sized)) -> Result<LateSync> {
    let mut late = LateSync {
        switched: Vec::new(),
    };
    for model in handles(models) {
        if let Some(one) = model.strategy() {
            one.expect_backward()?;
            late.switched
                .push((one.clone(), one.set_sync_gradients(true)));
        }
    }
    Ok(late)
}

impl Drop for LateSync {
    fn drop(&mut self) {
        for (one, before) in self.switched.iter().rev() {
            one.set_sync_gradients(*before);
        }
    }
}
