use std::cell::Cell;
use std::fmt;
use std::panic::Location;

use tch::Tensor;

use super::models::{ModelGradients, ModelId, Models, handles};
use super::normalized::{ItemCount, NormalizedLoss};
use super::sync::NoSync;
use crate::collectives::Site;
use crate::gradient_state::GradientState;
use crate::parallel;
use crate::precision::GradScaler;
use crate::state::PartialState;
use crate::{Error, Result};

/// What a scope needs to know of its accelerator.
#[derive(Clone)]
pub(crate) struct ScopeContext {
    pub(crate) gradient_state: GradientState,
    pub(crate) scaler: Option<GradScaler>,
    pub(crate) state: PartialState,
}

/// One batch of some models: forward and backward pass, and the optimizer's calls.
///
/// It ends where it is dropped, so bind it to a name: `let step = accelerator.accumulate(..)?`.
/// `let _ = ..` would end it at once.
#[must_use = "gradients are exchanged again as soon as this is dropped"]
pub struct AccumulationScope {
    context: ScopeContext,
    models: Vec<ModelGradients>,
    set: Vec<ModelId>,
    sync_gradients: bool,
    /// Where this scope is inside of another one, what that one said.
    around: Option<bool>,
    normalized: Cell<bool>,
    _local: Option<NoSync>,
}

impl AccumulationScope {
    pub(crate) fn new(context: ScopeContext, models: &(impl Models + ?Sized)) -> Self {
        let models = handles(models);
        let mut set: Vec<ModelId> = models.iter().map(ModelGradients::id).collect();
        set.sort_unstable();
        let state = &context.gradient_state;
        let around = state.open_scope().then(|| state.sync_gradients());
        let last = state.sync_with_dataloader() && state.end_of_dataloader();
        let sync_gradients = state.counters().advance(&set, state.num_steps(), last);
        state.set_sync_gradients(sync_gradients);
        let local = !(sync_gradients || state.sync_each_batch());
        Self {
            _local: local.then(|| NoSync::over(&models)),
            context,
            models,
            set,
            sync_gradients,
            around,
            normalized: Cell::new(false),
        }
    }

    /// Whether gradients are complete with this batch.
    #[must_use]
    pub fn sync_gradients(&self) -> bool {
        self.sync_gradients
    }

    /// Backward pass for a **sum** of losses, normalised by the number of items in all batches
    /// of all ranks.
    ///
    /// Batches with different numbers of real items (tokens that are no padding, for instance)
    /// then count by their items, as in one large batch: gradients and the loss answered do
    /// not depend on how the items were spread over batches and ranks. The mean over each
    /// batch followed by the mean over batches, which
    /// [`backward`](crate::Accelerator::backward) computes, is something else.
    ///
    /// Nothing has to be known in advance: sums are accumulated, and when gradients are
    /// complete they are divided by the count, before any clipping. Use it for every batch,
    /// once in each scope, and not together with `backward` on the same models.
    ///
    /// With fp16 the loss scale adapts itself to the size of a sum, at the cost of some skipped
    /// steps in the beginning; a smaller `init_scale` avoids them.
    ///
    /// Answers the mean loss per item over all batches and ranks once gradients are complete.
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    /// use accelerate::Accelerator;
    /// use accelerate::nn::{Factory, Forward, Linear, Module};
    /// use accelerate::optim::{Optimizer, Sgd, SgdConfig};
    /// use accelerate::tch::{Kind, Reduction, Tensor};
    ///
    /// // A "language model" over 5 words, on sentences of different lengths. -100 is padding.
    /// let accelerator = Accelerator::builder()
    ///     .gradient_accumulation_steps(NonZeroUsize::new(2).unwrap())
    ///     .build()?;
    /// let model = Linear::new(3, 5, &Factory::default())?;
    /// let weights = model.parameters().iter().map(|p| p.tensor().shallow_clone()).collect::<Vec<_>>();
    /// let (model, mut optimizer) = accelerator.prepare((model, Sgd::new(weights, SgdConfig::new(0.1))?))?;
    /// for labels in [[1i64, 2, 3, 4], [0, -100, -100, -100]] {
    ///     let labels = Tensor::from_slice(&labels);
    ///     let hidden = Tensor::f_ones([4, 3], (Kind::Float, accelerator.device()))?;
    ///     let step = accelerator.accumulate(&model)?;
    ///     let logits = model.call(hidden)?;
    ///     let loss_sum = logits.f_cross_entropy_loss::<Tensor>(&labels, None, Reduction::Sum, -100, 0.0)?;
    ///     let tokens = labels.f_ne(-100)?.f_sum(Kind::Int64)?;
    ///     if let Some(done) = step.backward_normalized(&loss_sum, tokens)? {
    ///         assert_eq!(done.items.int64_value(&[]), 5);
    ///         println!("loss per token {:.3}", done.mean.double_value(&[]));
    ///     }
    ///     optimizer.step()?;
    ///     optimizer.zero_grad()?;
    /// }
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    ///
    /// # Shapes
    /// - `loss_sum`: `[]`; `items`: a number, or an integer tensor `[]`
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// A second call in one scope; a scope without models; a loss without a graph; what the
    /// backend reports.
    ///
    /// # Source
    /// The original has no such call: its guide collects the batches first, counts them, and
    /// corrects the loss by hand. The results are the same.
    #[track_caller]
    pub fn backward_normalized(
        &self,
        loss_sum: &Tensor,
        items: impl ItemCount,
    ) -> Result<Option<NormalizedLoss>> {
        self.check_normalized()?;
        let state = &self.context.gradient_state;
        let items = items.into_count(loss_sum.device())?;
        state.tallies().add(&self.set, loss_sum, &items)?;
        state.progress().record_loss(loss_sum, true)?;
        let scaled = match &self.context.scaler {
            Some(scaler) => scaler.scale(loss_sum)?,
            None => loss_sum.shallow_clone(),
        };
        let site = Site::Code(Location::caller());
        let models = self.models.iter().filter_map(ModelGradients::strategy);
        let models: Vec<_> = models.cloned().collect();
        parallel::backward(&self.context.state, site, &models, &scaled)?;
        state.progress().steps().backward();
        if !self.sync_gradients {
            return Ok(None);
        }
        let tallies = state.tallies();
        let Some(group) = self.context.state.process_group() else {
            return tallies.finish(&self.set, &self.models, None);
        };
        self.context
            .state
            .counted("backward_normalized", site, |_| {
                tallies.finish(&self.set, &self.models, Some(group))
            })
    }

    fn check_normalized(&self) -> Result<()> {
        let found = if self.models.is_empty() {
            "a scope without models, whose gradients it could not divide"
        } else if self.normalized.replace(true) {
            "a second call; open a scope for each batch"
        } else {
            return Ok(());
        };
        Err(Error::Argument {
            operation: "backward_normalized",
            expected: "one call in a scope of one or more models".to_owned(),
            found: found.to_owned(),
        })
    }
}

impl Drop for AccumulationScope {
    fn drop(&mut self) {
        // Outside of all scopes the last answer stays: loops ask for it after the batch.
        self.context.gradient_state.close_scope();
        if let Some(before) = self.around {
            self.context.gradient_state.set_sync_gradients(before);
        }
    }
}

impl fmt::Debug for AccumulationScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccumulationScope")
            .field("models", &self.models.len())
            .field("sync_gradients", &self.sync_gradients)
            .finish_non_exhaustive()
    }
}
