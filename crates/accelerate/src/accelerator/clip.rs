use std::borrow::Borrow;

use accelerate_plan::parallel::{Clipping, Dialect};
use tch::Tensor;

use super::Accelerator;
use crate::gradient_clipping::{self, ClipNorm};
use crate::nn::Parameter;
use crate::parallel;
use crate::{Error, Result};

/// Parameters whose gradients are clipped: of a module, or tensors.
///
/// `model.parameters()`, or a list of tensors or references to them.
pub trait ClippedParameters {
    /// Handles on the tensors.
    fn tensors(self) -> Vec<Tensor>;
}

impl ClippedParameters for Vec<&Parameter> {
    fn tensors(self) -> Vec<Tensor> {
        self.into_iter()
            .map(|parameter| parameter.tensor().shallow_clone())
            .collect()
    }
}

impl<T: Borrow<Tensor>> ClippedParameters for &[T] {
    fn tensors(self) -> Vec<Tensor> {
        self.iter()
            .map(|one| one.borrow().shallow_clone())
            .collect()
    }
}

impl<T: Borrow<Tensor>, const N: usize> ClippedParameters for &[T; N] {
    fn tensors(self) -> Vec<Tensor> {
        self.as_slice().tensors()
    }
}

impl<T: Borrow<Tensor>> ClippedParameters for &Vec<T> {
    fn tensors(self) -> Vec<Tensor> {
        self.as_slice().tensors()
    }
}

impl Accelerator {
    /// Scales the gradients of `parameters` so that their norm, taken over all of them
    /// together, is at most `max_norm`.
    ///
    /// Answers the norm as it was, or none while gradients are accumulated: like an optimizer's
    /// step, this does nothing then, so a loop needs no conditions. Loss scaling is undone
    /// before, once, for every optimizer that trains one of the parameters.
    ///
    /// Where a plan says how gradients are clipped, or that they are not, as DeepSpeed's do, this only
    /// answers the norm.
    ///
    /// # Shapes
    /// - answer: `[]`
    ///
    /// # Collective
    /// Every rank calls this with the same parameters, if a model is in shards: the norm is that of
    /// all ranks' parts together.
    ///
    /// # Errors
    /// A limit that is no number; float16 gradients.
    ///
    /// # Source
    /// `Accelerator.clip_grad_norm_`. Differs: the original clips unfinished gradients too, and
    /// with fp16 fails at the next call; two calls at one step fail there as well.
    pub fn clip_grad_norm(
        &self,
        parameters: impl ClippedParameters,
        max_norm: f64,
    ) -> Result<Option<Tensor>> {
        self.clip_grad_norm_with(parameters, max_norm, ClipNorm::default())
    }

    /// As [`clip_grad_norm`](Self::clip_grad_norm), with another norm, or a check that it is finite.
    ///
    /// # Errors
    /// Also a norm that is not finite, where that is an error. With loss scaling such a norm is
    /// a part of normal life, as the step is left out then.
    pub fn clip_grad_norm_with(
        &self,
        parameters: impl ClippedParameters,
        max_norm: f64,
        options: ClipNorm,
    ) -> Result<Option<Tensor>> {
        let limit = match self.parallel_plan().map(|plan| plan.clipping) {
            // Each step of an optimizer clips, or nothing does: only the norm is taken.
            Some(Clipping::Norm(_) | Clipping::Never) => f64::INFINITY,
            Some(Clipping::ByProgram) | None => max_norm,
        };
        self.clip_to(parameters, limit, options)
    }

    /// As [`clip_grad_norm_with`](Self::clip_grad_norm_with), whoever clips by the plan.
    pub(super) fn clip_to(
        &self,
        parameters: impl ClippedParameters,
        max_norm: f64,
        options: ClipNorm,
    ) -> Result<Option<Tensor>> {
        let Some(tensors) = self.ready_to_clip(parameters)? else {
            return Ok(None);
        };
        let sharded = self.shared.registry.sharded();
        let norm = gradient_clipping::clip_by(&tensors, max_norm, options, |order| {
            parallel::total_norm(&sharded, &tensors, order)
        })?;
        self.gradient_state().progress().steps().clipped(&norm);
        Ok(Some(norm))
    }

    /// Limits every value of the gradients of `parameters` to `-limit..=limit`.
    ///
    /// As [`clip_grad_norm`](Self::clip_grad_norm) it does nothing while gradients are
    /// accumulated.
    ///
    /// # Errors
    /// A limit that is no number; float16 gradients; a plan in DeepSpeed's words, which clips by the norm
    /// and nothing else.
    ///
    /// # Source
    /// `Accelerator.clip_grad_value_`. Differs: the original refuses it under FSDP too, where each rank
    /// can clip its own part.
    pub fn clip_grad_value(&self, parameters: impl ClippedParameters, limit: f64) -> Result<()> {
        let plan = self.parallel_plan();
        if plan.is_some_and(|plan| plan.dialect == Dialect::DeepSpeed) {
            return Err(Error::Argument {
                operation: "clip_grad_value",
                expected:
                    "a job without DeepSpeed; its config clips by the norm: `gradient_clipping`"
                        .to_owned(),
                found: "a job with it".to_owned(),
            });
        }
        match self.ready_to_clip(parameters)? {
            Some(tensors) => gradient_clipping::clip_grad_value(&tensors, limit),
            None => Ok(()),
        }
    }

    /// The parameters, with gradients at their true size; none while these are accumulated.
    fn ready_to_clip(&self, parameters: impl ClippedParameters) -> Result<Option<Vec<Tensor>>> {
        if !self.sync_gradients() {
            return Ok(None);
        }
        let tensors = parameters.tensors();
        self.rest()?;
        if let Some(scaler) = self.scaler() {
            scaler.unscale_of(Some(&tensors))?;
        }
        Ok(Some(tensors))
    }
}
