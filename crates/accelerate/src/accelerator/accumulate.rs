use std::num::NonZeroUsize;

use super::Accelerator;
use crate::Result;
use crate::accumulation::{AccumulationScope, LateSync, Models, NoSync, ScopeContext, trigger};

impl Accelerator {
    /// One batch of `models` while gradients are accumulated: `&model`, or `(&a, &b)`.
    ///
    /// Until the scope is dropped, gradients stay on this rank, and optimizers and schedules
    /// stand still, unless this batch completes the gradients: every
    /// [`num_steps`](crate::GradientState::num_steps)-th one does, and the last one of a loader.
    /// One forward and one backward pass belong inside. Models are counted by the set in which
    /// they are given, so several of these in one loop, or a loop inside of another one, do not
    /// disturb each other. A batch that does not complete gradients sends none of them; buffers
    /// of the model are sent once after each exchange, before the next forward pass.
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    /// use accelerate::data::DataLoader;
    /// use accelerate::nn::{Factory, Forward, Linear, Module};
    /// use accelerate::optim::{Optimizer, Sgd, SgdConfig};
    /// use accelerate::tch::Kind;
    /// use accelerate::Accelerator;
    ///
    /// let accelerator = Accelerator::builder()
    ///     .gradient_accumulation_steps(NonZeroUsize::new(4).unwrap())
    ///     .build()?;
    /// let model = Linear::new(1, 1, &Factory::default())?;
    /// let weights: Vec<_> = model.parameters().iter().map(|p| p.tensor().shallow_clone()).collect();
    /// let optimizer = Sgd::new(weights, SgdConfig::new(0.02))?;
    /// let samples: Vec<f64> = (1..9).map(f64::from).collect();
    /// let batches = DataLoader::builder(samples).batch_size(2).build()?;
    /// let (model, mut optimizer, batches) = accelerator.prepare((model, optimizer, batches))?;
    /// for batch in &batches {
    ///     let x = batch?.f_to_kind(Kind::Float)?.f_unsqueeze(1)?;
    ///     let _step = accelerator.accumulate(&model)?;
    ///     let loss = model.call(&x)?.f_sub(&x)?.f_square()?.f_mean(Kind::Float)?;
    ///     accelerator.backward(&loss)?;
    ///     optimizer.step()?;
    ///     optimizer.zero_grad()?;
    /// }
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    ///
    /// # Collective
    /// Every rank opens the same scopes.
    ///
    /// # Errors
    /// None today; what turns synchronisation off may fail for other ways to train in parallel.
    ///
    /// # Source
    /// `Accelerator.accumulate`. Differs: each set of models has its own count. The original
    /// has one count of calls, so that of two scopes in one loop with `num_steps` of 2 only the
    /// second one ever completes.
    pub fn accumulate(&self, models: impl Models) -> Result<AccumulationScope> {
        let context = ScopeContext {
            gradient_state: self.gradient_state().clone(),
            scaler: self.scaler().cloned(),
            state: self.state().clone(),
        };
        Ok(AccumulationScope::new(context, &models))
    }

    /// Keeps the gradients of `models` on this rank until the guard is dropped.
    ///
    /// Forward and backward pass both belong inside. On a process by itself nothing changes.
    ///
    /// # Collective
    /// Every rank does the same.
    ///
    /// # Source
    /// `Accelerator.no_sync`.
    pub fn no_sync(&self, models: impl Models) -> NoSync {
        NoSync::new(&models)
    }

    /// Lets the next backward pass exchange everything that was accumulated under
    /// [`no_sync`](Self::no_sync), although its forward pass has run already.
    ///
    /// Open it after the forward pass and drop it after the backward pass.
    ///
    /// # Collective
    /// Every rank does the same.
    ///
    /// # Errors
    /// With `find_unused_parameters`, which has to see the forward pass; what the reducer reports.
    ///
    /// # Source
    /// `Accelerator.trigger_sync_in_backward`. Differs: unused parameters are an error here; in
    /// the original all parameters then count as unused, and the backward pass fails.
    pub fn trigger_sync_in_backward(&self, models: impl Models) -> Result<LateSync> {
        trigger(&models)
    }

    /// Over how many batches gradients are accumulated.
    #[must_use]
    pub fn gradient_accumulation_steps(&self) -> NonZeroUsize {
        self.gradient_state().num_steps()
    }

    /// Changes over how many batches gradients are accumulated, from the next batch on.
    pub fn set_gradient_accumulation_steps(&self, steps: NonZeroUsize) {
        self.gradient_state().set_num_steps(steps);
    }
}
