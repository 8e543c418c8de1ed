use std::cell::{Ref, RefCell, RefMut};
use std::num::NonZeroUsize;
use std::rc::{Rc, Weak};

use super::rates::LearningRates;
use super::schedule::{RatesBefore, Scheduler};
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
/// written for the plain program. With split batches it makes one. With
/// [`adjust_scheduler`](crate::accumulation::GradientAccumulationPlugin::adjust_scheduler) it
/// makes as many for each of the batches that were accumulated. What this comes to is logged once when the schedule is prepared, and once more when it passes its end.
///
/// # Source
/// `accelerate.scheduler.AcceleratedScheduler`.
#[derive(Debug)]
pub struct AcceleratedScheduler<S> {
    /// Shared with the accelerator, which saves and loads its state.
    inner: Rc<RefCell<S>>,
    rates: LearningRates,
    links: Vec<LearningRates>,
    gradient_state: GradientState,
    stepping: SchedulerStepping,
    once_per_update: bool,
    /// How many batches were accumulated since the last update.
    accumulated: u64,
    updates: u64,
    end_was_told: bool,
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
        let prepared = Self {
            rates: inner.learning_rates().clone(),
            inner: Rc::new(RefCell::new(inner)),
            links,
            gradient_state,
            stepping,
            once_per_update: false,
            accumulated: 0,
            updates: 0,
            end_was_told: false,
        };
        prepared.tell_pace();
        prepared
    }

    /// Makes one step at each update, however many ranks and accumulated batches there are:
    /// for a schedule whose length counts updates and not batches of the plain program.
    #[must_use]
    pub fn once_per_update(mut self) -> Self {
        self.once_per_update = true;
        self.tell_pace();
        self
    }

    /// How many steps the schedule makes at each update of the optimizer.
    ///
    /// Where it is adjusted to accumulation, fewer at an update of fewer batches, as at the
    /// end of a loader.
    #[must_use]
    pub fn steps_per_update(&self) -> u64 {
        let batches = self.gradient_state.num_steps().get() as u64;
        match self.is_adjusted() {
            true => batches * self.steps_per_batch(),
            false => self.steps_per_batch(),
        }
    }

    fn steps_per_batch(&self) -> u64 {
        let stepping = self.stepping;
        let one = self.once_per_update || stepping.split_batches || !stepping.step_with_optimizer;
        if one {
            1
        } else {
            stepping.num_processes.get() as u64
        }
    }

    /// Whether every accumulated batch counts.
    fn is_adjusted(&self) -> bool {
        self.gradient_state.adjust_scheduler()
            && self.stepping.step_with_optimizer
            && !self.once_per_update
    }

    /// At which update the schedule reaches its last rate, as far as it knows its length.
    #[must_use]
    pub fn ends_at_update(&self) -> Option<u64> {
        let length = self.inner.borrow().length()?;
        Some(length.div_ceil(self.steps_per_update()))
    }

    fn tell_pace(&self) {
        let steps = self.steps_per_update();
        match (self.inner.borrow().length(), self.ends_at_update()) {
            (Some(length), Some(update)) => tracing::info!(
                "the schedule makes {steps} step(s) at each update, so its {length} steps end at update {update}"
            ),
            _ => tracing::info!("the schedule makes {steps} step(s) at each update"),
        }
    }

    fn tell_end(&mut self) {
        // The update that reaches the end may go past it by less than its own steps.
        let steps = self.steps_per_update();
        let passed = |length| self.inner.borrow().step_count() > length + steps;
        if self.end_was_told || !self.inner.borrow().length().is_some_and(passed) {
            return;
        }
        self.end_was_told = true;
        tracing::warn!(
            update = self.updates,
            "the schedule has passed its end: it makes {} step(s) at each update; count its length over \
             the loader before it is prepared, or make it step once per update (`once_per_update`)",
            self.steps_per_update()
        );
    }

    /// The schedule as it was before.
    pub fn inner(&self) -> Ref<'_, S> {
        self.inner.borrow()
    }

    /// As [`inner`](Self::inner), for changes.
    pub fn inner_mut(&mut self) -> RefMut<'_, S> {
        self.inner.borrow_mut()
    }

    /// The schedule as it was before; the accelerator no longer saves its state.
    pub fn into_inner(self) -> Option<S> {
        Rc::into_inner(self.inner).map(RefCell::into_inner)
    }

    /// How many batches this call of `step` is to move the schedule by.
    fn due(&mut self) -> u64 {
        if !self.stepping.step_with_optimizer {
            return 1;
        }
        if !self.gradient_state.sync_gradients() {
            self.accumulated += 1;
            return 0;
        }
        let batches = 1 + std::mem::take(&mut self.accumulated);
        if self.links.iter().any(LearningRates::was_skipped) {
            return 0;
        }
        if self.is_adjusted() { batches } else { 1 }
    }

    fn advance(&mut self, mut step: impl FnMut(&mut S) -> Result<()>) -> Result<()> {
        let batches = self.due();
        if batches == 0 {
            return Ok(());
        }
        self.updates += 1;
        let steps = batches * self.steps_per_batch();
        // With one step the schedule itself says that it is at its end.
        let several = steps > 1 || !self.stepping.split_batches;
        let bounded = self.stepping.step_with_optimizer && several;
        for _ in 0..steps {
            let total = self.inner.borrow().total_steps();
            // A schedule with an end must not be pushed past it by the ranks' extra steps.
            if bounded && total.is_some_and(|total| self.inner.borrow().step_count() > total) {
                break;
            }
            step(&mut self.inner.borrow_mut())?;
        }
        self.tell_end();
        Ok(())
    }
}

impl<S: Scheduler + 'static> AcceleratedScheduler<S> {
    /// A handle on the schedule that does not keep it alive.
    pub(crate) fn handle(&self) -> Weak<RefCell<dyn Scheduler>> {
        let inner: Rc<RefCell<dyn Scheduler>> = Rc::<RefCell<S>>::clone(&self.inner);
        Rc::downgrade(&inner)
    }
}

impl<S: Scheduler> Scheduler for AcceleratedScheduler<S> {
    fn step(&mut self) -> Result<()> {
        self.advance(S::step)
    }

    fn step_with_metric(&mut self, metric: f64) -> Result<()> {
        self.advance(|inner| inner.step_with_metric(metric))
    }

    fn restart(&mut self, rates: RatesBefore) -> Result<()> {
        self.inner.borrow_mut().restart(rates)
    }

    fn last_lr(&self) -> Vec<f64> {
        self.inner.borrow().last_lr()
    }

    fn learning_rates(&self) -> &LearningRates {
        &self.rates
    }

    fn step_count(&self) -> u64 {
        self.inner.borrow().step_count()
    }

    fn total_steps(&self) -> Option<u64> {
        self.inner.borrow().total_steps()
    }

    fn length(&self) -> Option<u64> {
        self.inner.borrow().length()
    }

    fn state_dict(&self) -> StateDict {
        self.inner.borrow().state_dict()
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        self.inner.borrow_mut().load_state_dict(state)
    }
}
