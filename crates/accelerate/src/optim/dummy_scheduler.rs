use std::fmt;
use std::rc::Rc;

use super::optimizer::Optimizer;
use super::rates::LearningRates;
use super::schedule::Scheduler;
use super::state_dict::StateDict;
use crate::{Error, Result};

/// Makes a schedule for the optimizer that a DeepSpeed config names.
pub type SchedulerCallable = dyn Fn(&dyn Optimizer) -> Result<Box<dyn Scheduler>>;

/// What a [`DummyScheduler`] says where the DeepSpeed config says `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DummySchedulerConfig {
    /// Steps in all, counted over the loader before it is prepared: ranks share them.
    pub total_num_steps: Option<u64>,
    /// Steps of the warm-up, counted in steps of the optimizer.
    pub warmup_num_steps: u64,
}

/// A stand-in for the schedule that a DeepSpeed config names, or for one that can only be made once
/// the named optimizer is there. [`prepare`](crate::Accelerator::prepare) puts the schedule into its
/// place.
///
/// # Source
/// `accelerate.utils.DummyScheduler`. Differs: further arguments, which the original stores and
/// nobody reads, do not exist.
#[derive(Clone)]
pub struct DummyScheduler {
    config: DummySchedulerConfig,
    rates: LearningRates,
    callable: Option<Rc<SchedulerCallable>>,
}

impl DummyScheduler {
    /// A stand-in for a schedule of `optimizer`, which may be a stand-in too.
    #[must_use]
    pub fn new<O: Optimizer + ?Sized>(optimizer: &O, config: DummySchedulerConfig) -> Self {
        Self {
            config,
            rates: optimizer.learning_rates().clone(),
            callable: None,
        }
    }

    /// What makes the schedule where the DeepSpeed config names none: it gets the optimizer that
    /// steps, and is called when the stand-in is prepared.
    #[must_use]
    pub fn with_callable(
        mut self,
        callable: impl Fn(&dyn Optimizer) -> Result<Box<dyn Scheduler>> + 'static,
    ) -> Self {
        self.callable = Some(Rc::new(callable));
        self
    }

    /// What it says where the config says `auto`.
    #[must_use]
    pub fn config(&self) -> DummySchedulerConfig {
        self.config
    }

    pub(crate) fn callable(&self) -> Option<&SchedulerCallable> {
        self.callable.as_deref()
    }
}

impl Scheduler for DummyScheduler {
    fn step(&mut self) -> Result<()> {
        Err(unprepared("DummyScheduler::step"))
    }

    fn last_lr(&self) -> Vec<f64> {
        self.rates.all()
    }

    fn learning_rates(&self) -> &LearningRates {
        &self.rates
    }

    fn stand_in(&self) -> Option<&DummyScheduler> {
        Some(self)
    }

    fn step_count(&self) -> u64 {
        0
    }

    fn state_dict(&self) -> StateDict {
        StateDict::new()
    }

    fn load_state_dict(&mut self, _state: &StateDict) -> Result<()> {
        Err(unprepared("DummyScheduler::load_state_dict"))
    }
}

impl fmt::Debug for DummyScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DummyScheduler")
            .field("config", &self.config)
            .field("rates", &self.rates)
            .field("has_callable", &self.callable.is_some())
            .finish()
    }
}

fn unprepared(operation: &'static str) -> Error {
    Error::Argument {
        operation,
        expected: "a stand-in that was prepared".to_owned(),
        found: "one that was not, which is no schedule yet".to_owned(),
    }
}
