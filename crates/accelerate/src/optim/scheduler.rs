use super::rates::LearningRates;
use super::state_dict::StateDict;
use crate::Result;

/// Sets an optimizer's learning rates as training goes on.
pub trait Scheduler {
    /// Moves on by one step and sets the learning rates.
    ///
    /// # Errors
    /// What the schedule cannot do, such as a step past its end.
    fn step(&mut self) -> Result<()>;

    /// The learning rates that were set last, one per group.
    fn last_lr(&self) -> Vec<f64>;

    /// The rates that are set: the handle of the optimizer that follows this schedule.
    fn learning_rates(&self) -> &LearningRates;

    /// How many steps were made, counting the one that set the first rates.
    fn step_count(&self) -> u64;

    /// After how many steps the schedule ends, if it refuses to go on.
    fn total_steps(&self) -> Option<u64> {
        None
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

    fn last_lr(&self) -> Vec<f64> {
        (**self).last_lr()
    }

    fn learning_rates(&self) -> &LearningRates {
        (**self).learning_rates()
    }

    fn step_count(&self) -> u64 {
        (**self).step_count()
    }

    fn total_steps(&self) -> Option<u64> {
        (**self).total_steps()
    }

    fn state_dict(&self) -> StateDict {
        (**self).state_dict()
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        (**self).load_state_dict(state)
    }
}
