use std::num::NonZeroUsize;

use super::rates::LearningRates;
use super::scheduler::Scheduler;
use super::state_dict::StateDict;
use crate::Result;
use crate::gradient_state::GradientState;

/// How often a prepared schedule moves on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerStepping {
    /// Follows the optimizer; if off, each call is one step, always.
    pub step_with_optimizer: bool,
    /// Whether loaders split batches over ranks, so that one step is one step of the plain program.
    pub split_batches: bool,
    /// The number of ranks.
    pub num_processes: NonZeroUsize,
}

impl Default for SchedulerStepping {
    fn default() -> Self {
        Self {
            step_with_optimizer: true,
            split_batches: false,
            num_processes: NonZeroUsize::MIN,
        }
    }
}

/// A schedule that moves on with its optimizer.
///
/// While gradients are accumulated, or when the optimizer skipped its step, it
/// stands still. Otherwise one call makes as many steps as there are ranks: N
/// ranks go through the data in one Nth of the steps, and the schedule was
/// written for the plain program. With split batches it makes one.
///
/// # Source
/// `accelerate.scheduler.AcceleratedScheduler`.
#[derive(Debug)]
pub struct AcceleratedScheduler<S> {
    inner: S,
    links: Vec<LearningRates>,
    gradient_state: GradientState,
    stepping: SchedulerStepping,
}

impl<S: Scheduler> AcceleratedScheduler<S> {
    /// Makes `inner` follow its optimizer.
    ///
    /// That is the one of `optimizers` whose rates `inner` sets; if none of them
    /// is, all of them are followed.
    pub fn new(
        inner: S,
        optimizers: &[LearningRates],
        gradient_state: GradientState,
        stepping: SchedulerStepping,
    ) -> Self {
        let own = optimizers
            .iter()
            .find(|rates| rates.is_same(inner.learning_rates()));
        let links = match own {
            Some(own) => vec![own.clone()],
            None => optimizers.to_vec(),
        };
        Self {
            inner,
            links,
            gradient_state,
            stepping,
        }
    }

    /// The schedule as it was before.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// As [`inner`](Self::inner), for changes.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The schedule as it was before.
    pub fn into_inner(self) -> S {
        self.inner
    }

    fn step_for_every_rank(&mut self) -> Result<()> {
        for _ in 0..self.stepping.num_processes.get() {
            // A schedule with an end must not be pushed past it by the ranks' extra steps.
            if self
                .inner
                .total_steps()
                .is_some_and(|total| self.inner.step_count() > total)
            {
                return Ok(());
            }
            self.inner.step()?;
        }
        Ok(())
    }
}

impl<S: Scheduler> Scheduler for AcceleratedScheduler<S> {
    fn step(&mut self) -> Result<()> {
        if !self.stepping.step_with_optimizer {
            return self.inner.step();
        }
        if !self.gradient_state.sync_gradients() {
            return Ok(());
        }
        if self.links.iter().any(LearningRates::was_skipped) {
            return Ok(());
        }
        if self.stepping.split_batches {
            self.inner.step()
        } else {
            self.step_for_every_rank()
        }
    }

    fn last_lr(&self) -> Vec<f64> {
        self.inner.last_lr()
    }

    fn learning_rates(&self) -> &LearningRates {
        self.inner.learning_rates()
    }

    fn step_count(&self) -> u64 {
        self.inner.step_count()
    }

    fn total_steps(&self) -> Option<u64> {
        self.inner.total_steps()
    }

    fn state_dict(&self) -> StateDict {
        self.inner.state_dict()
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        self.inner.load_state_dict(state)
    }
}
