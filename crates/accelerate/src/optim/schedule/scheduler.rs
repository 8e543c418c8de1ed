use crate::optim::{DummyScheduler, LearningRates, StateDict};
use crate::{Error, Result};

/// Which rates are in force when a schedule starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RatesBefore {
    /// The optimizer's initial ones.
    Initial,
    /// Those of another schedule.
    Others,
}

/// Sets an optimizer's learning rates as training goes on.
pub trait Scheduler {
    /// Moves on by one step and sets the learning rates.
    ///
    /// # Errors
    /// What the schedule cannot do, such as a step past its end.
    fn step(&mut self) -> Result<()>;

    /// As [`step`](Self::step), for a schedule that watches `metric`, such as a validation loss.
    ///
    /// # Errors
    /// [`Error::Argument`] if the schedule watches nothing.
    fn step_with_metric(&mut self, metric: f64) -> Result<()> {
        Err(Error::Argument {
            operation: "Scheduler::step_with_metric",
            expected: "a schedule that watches a metric; call `step` on others".into(),
            found: format!("one that does not, and a metric of {metric}"),
        })
    }

    /// Goes back to step 0 and sets its rates, for one schedule after another.
    ///
    /// `rates` says from where the rates go on.
    ///
    /// # Errors
    /// [`Error::Argument`] if the schedule cannot.
    fn restart(&mut self, rates: RatesBefore) -> Result<()> {
        Err(Error::Argument {
            operation: "Scheduler::restart",
            expected: "a schedule that is a function of the step".into(),
            found: format!("one that cannot start again, with the {rates:?} rates"),
        })
    }

    /// The learning rates that were set last, one per group.
    fn last_lr(&self) -> Vec<f64>;

    /// The rates that are set: the handle of the optimizer that follows this schedule.
    fn learning_rates(&self) -> &LearningRates;

    /// The stand-in that this is, if it is one: what is prepared in its place makes the steps.
    fn stand_in(&self) -> Option<&DummyScheduler> {
        None
    }

    /// How many steps were made, counting the one that set the first rates.
    fn step_count(&self) -> u64;

    /// After how many steps the schedule ends, if it refuses to go on.
    fn total_steps(&self) -> Option<u64> {
        None
    }

    /// After how many steps the schedule has reached its last rate, as far as it knows.
    fn length(&self) -> Option<u64> {
        self.total_steps()
    }

    /// Where the schedule stands. The learning rates in force belong to the
    /// optimizer's state.
    fn state_dict(&self) -> StateDict;

    /// Goes on from `state`. On an error nothing has changed.
    ///
    /// # Errors
    /// [`Error::StateMismatch`](crate::Error::StateMismatch) with everything that does not fit.
    fn load_state_dict(&mut self, state: &StateDict) -> Result<()>;
}

impl<S: Scheduler + ?Sized> Scheduler for Box<S> {
    fn step(&mut self) -> Result<()> {
        (**self).step()
    }

    fn step_with_metric(&mut self, metric: f64) -> Result<()> {
        (**self).step_with_metric(metric)
    }

    fn restart(&mut self, rates: RatesBefore) -> Result<()> {
        (**self).restart(rates)
    }

    fn last_lr(&self) -> Vec<f64> {
        (**self).last_lr()
    }

    fn learning_rates(&self) -> &LearningRates {
        (**self).learning_rates()
    }

    fn stand_in(&self) -> Option<&DummyScheduler> {
        (**self).stand_in()
    }

    fn step_count(&self) -> u64 {
        (**self).step_count()
    }

    fn total_steps(&self) -> Option<u64> {
        (**self).total_steps()
    }

    fn length(&self) -> Option<u64> {
        (**self).length()
    }

    fn state_dict(&self) -> StateDict {
        (**self).state_dict()
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        (**self).load_state_dict(state)
    }
}
