use std::fmt;

use super::scheduler::{RatesBefore, Scheduler};
use crate::Result;
use crate::optim::state_dict::{StateReader, StateValue};
use crate::optim::{LearningRates, Optimizer, StateDict};

/// A point of a schedule, for one parameter group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// The group.
    pub group: usize,
    /// The step, counted from 0.
    pub step: u64,
    /// The group's initial learning rate.
    pub initial: f64,
    /// The learning rate in force.
    pub current: f64,
}

/// How a [`Schedule`] gets from step to step: implement it for a schedule of your own.
pub trait RateRule {
    /// The schedule's name, for messages.
    const NAME: &'static str;

    /// The rate of step 0, where `current` is what the optimizer has.
    fn first(&self, at: Moment) -> f64 {
        at.current
    }

    /// The rate of `at.step`, which is 1 or more; `at.current` is that of the step before.
    fn rate(&self, at: Moment) -> f64;

    /// The rate of step 0 where another schedule's rates are in force.
    fn anew(&self, at: Moment) -> f64 {
        self.first(Moment {
            current: at.initial,
            ..at
        })
    }

    /// The momentum of this step, if the schedule moves it too.
    fn momentum(&self, _at: Moment) -> Option<f64> {
        None
    }

    /// The last step, if the schedule refuses to go further.
    fn total_steps(&self) -> Option<u64> {
        None
    }

    /// The step at which the last rate is reached.
    fn length(&self) -> Option<u64> {
        self.total_steps()
    }

    /// Refuses a step that the schedule does not have.
    ///
    /// # Errors
    /// What the schedule says.
    fn allow(&self, _step: u64) -> Result<()> {
        Ok(())
    }
}

/// A schedule that follows a rule from step to step.
///
/// Making one sets the rates of step 0.
pub struct Schedule<R> {
    rule: R,
    rates: LearningRates,
    initial: Vec<f64>,
    last_epoch: u64,
    step_count: u64,
    last_lr: Vec<f64>,
}

impl<R: RateRule> Schedule<R> {
    /// A schedule for `optimizer` that follows `rule`.
    pub fn with_rule<O: Optimizer + ?Sized>(optimizer: &O, rule: R) -> Self {
        let rates = optimizer.learning_rates();
        let mut schedule = Self {
            rule,
            rates: rates.clone(),
            initial: rates.initial(),
            last_epoch: 0,
            step_count: 1,
            last_lr: Vec::new(),
        };
        schedule.set_rates(R::first);
        schedule
    }

    /// The step whose rates are in force, counted from 0.
    #[must_use]
    pub fn last_epoch(&self) -> u64 {
        self.last_epoch
    }

    /// The rule that the schedule follows.
    #[must_use]
    pub fn rule(&self) -> &R {
        &self.rule
    }

    fn set_rates(&mut self, rate: impl Fn(&R, Moment) -> f64) {
        let current = self.rates.all();
        let mut set = Vec::with_capacity(current.len());
        for (group, (&initial, current)) in self.initial.iter().zip(current).enumerate() {
            let at = Moment {
                group,
                step: self.last_epoch,
                initial,
                current,
            };
            let lr = rate(&self.rule, at);
            self.rates.set(group, lr);
            if let Some(momentum) = self.rule.momentum(at) {
                self.rates.set_momentum(group, momentum);
            }
            set.push(lr);
        }
        self.last_lr = set;
    }
}

impl<R: RateRule> Scheduler for Schedule<R> {
    fn step(&mut self) -> Result<()> {
        self.rule.allow(self.last_epoch + 1)?;
        self.last_epoch += 1;
        self.step_count += 1;
        self.set_rates(R::rate);
        Ok(())
    }

    fn restart(&mut self, rates: RatesBefore) -> Result<()> {
        self.last_epoch = 0;
        match rates {
            RatesBefore::Initial => self.set_rates(R::first),
            RatesBefore::Others => self.set_rates(R::anew),
        }
        Ok(())
    }

    fn last_lr(&self) -> Vec<f64> {
        self.last_lr.clone()
    }

    fn learning_rates(&self) -> &LearningRates {
        &self.rates
    }

    fn step_count(&self) -> u64 {
        self.step_count
    }

    fn total_steps(&self) -> Option<u64> {
        self.rule.total_steps()
    }

    fn length(&self) -> Option<u64> {
        self.rule.length()
    }

    fn state_dict(&self) -> StateDict {
        let mut state = StateDict::new();
        state.push_count("last_epoch", self.last_epoch);
        state.push_count("step_count", self.step_count);
        for (group, (&initial, &last)) in self.initial.iter().zip(&self.last_lr).enumerate() {
            let name = |field: &str| format!("group.{group}.{field}");
            state.push(name("initial_lr"), StateValue::Float(initial));
            state.push(name("last_lr"), StateValue::Float(last));
        }
        state
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut reader = StateReader::new(state);
        let last_epoch = reader.count("last_epoch");
        let step_count = reader.count("step_count");
        let (mut initial, mut last_lr) = (Vec::new(), Vec::new());
        for group in 0..self.initial.len() {
            initial.extend(reader.float(&format!("group.{group}.initial_lr")));
            last_lr.extend(reader.float(&format!("group.{group}.last_lr")));
        }
        reader.finish(R::NAME)?;
        self.last_epoch = last_epoch.unwrap_or_default();
        self.step_count = step_count.unwrap_or_default();
        self.initial = initial;
        self.last_lr = last_lr;
        Ok(())
    }
}

impl<R: RateRule> fmt::Debug for Schedule<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(R::NAME)
            .field("initial", &self.initial)
            .field("last_epoch", &self.last_epoch)
            .field("last_lr", &self.last_lr)
            .finish_non_exhaustive()
    }
}
