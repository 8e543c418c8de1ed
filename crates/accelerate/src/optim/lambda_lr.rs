use std::fmt;

use super::optimizer::Optimizer;
use super::rates::LearningRates;
use super::scheduler::Scheduler;
use super::state_dict::{StateDict, StateReader, StateValue};
use crate::{Error, Result};

/// What the initial learning rate is multiplied with at a step, counted from 0.
type Factor = Box<dyn Fn(u64) -> f64>;

/// Multiplies each group's initial learning rate with a function of the step.
///
/// Making one sets the rates of step 0.
///
/// # Source
/// `torch.optim.lr_scheduler.LambdaLR`.
pub struct LambdaLR {
    rates: LearningRates,
    initial: Vec<f64>,
    factors: Vec<Factor>,
    last_epoch: u64,
    step_count: u64,
    last_lr: Vec<f64>,
}

impl LambdaLR {
    /// One function for all groups of `optimizer`.
    pub fn new<O>(optimizer: &O, factor: impl Fn(u64) -> f64 + 'static) -> Self
    where
        O: Optimizer + ?Sized,
    {
        Self::start(optimizer.learning_rates(), vec![Box::new(factor)])
    }

    /// One function for each group of `optimizer`.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are not as many functions as groups.
    pub fn per_group<O>(optimizer: &O, factors: Vec<Factor>) -> Result<Self>
    where
        O: Optimizer + ?Sized,
    {
        let rates = optimizer.learning_rates();
        if factors.len() != rates.len() {
            return Err(Error::Argument {
                operation: "LambdaLR::per_group",
                expected: format!("one function for each of the {} groups", rates.len()),
                found: factors.len().to_string(),
            });
        }
        Ok(Self::start(rates, factors))
    }

    fn start(rates: &LearningRates, factors: Vec<Factor>) -> Self {
        let mut schedule = Self {
            rates: rates.clone(),
            initial: rates.initial(),
            factors,
            last_epoch: 0,
            step_count: 1,
            last_lr: Vec::new(),
        };
        schedule.set_rates();
        schedule
    }

    /// The step whose rates are in force, counted from 0.
    #[must_use]
    pub fn last_epoch(&self) -> u64 {
        self.last_epoch
    }

    fn set_rates(&mut self) {
        // With one function for all groups the iterator goes round.
        let factors = self.factors.iter().cycle();
        self.last_lr = self
            .initial
            .iter()
            .zip(factors)
            .map(|(initial, factor)| initial * factor(self.last_epoch))
            .collect();
        for (group, &lr) in self.last_lr.iter().enumerate() {
            self.rates.set(group, lr);
        }
    }
}

impl Scheduler for LambdaLR {
    fn step(&mut self) -> Result<()> {
        self.last_epoch += 1;
        self.step_count += 1;
        self.set_rates();
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

    fn state_dict(&self) -> StateDict {
        let int = |count: u64| StateValue::Int(i64::try_from(count).unwrap_or(i64::MAX));
        let mut state = StateDict::new();
        state.push("last_epoch", int(self.last_epoch));
        state.push("step_count", int(self.step_count));
        for (group, (&initial, &last)) in self.initial.iter().zip(&self.last_lr).enumerate() {
            state.push(
                format!("group.{group}.initial_lr"),
                StateValue::Float(initial),
            );
            state.push(format!("group.{group}.last_lr"), StateValue::Float(last));
        }
        state
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut reader = StateReader::new(state);
        let mut count = |name: &str| {
            let read = reader.int(name)?;
            let count = u64::try_from(read).ok();
            if count.is_none() {
                reader.problem(format!("`{name}`: expected a count, found {read}"));
            }
            count
        };
        let (last_epoch, step_count) = (count("last_epoch"), count("step_count"));
        let mut initial = Vec::new();
        let mut last_lr = Vec::new();
        for group in 0..self.initial.len() {
            initial.extend(reader.float(&format!("group.{group}.initial_lr")));
            last_lr.extend(reader.float(&format!("group.{group}.last_lr")));
        }
        reader.finish("LambdaLR")?;
        self.last_epoch = last_epoch.unwrap_or_default();
        self.step_count = step_count.unwrap_or_default();
        self.initial = initial;
        self.last_lr = last_lr;
        Ok(())
    }
}

impl fmt::Debug for LambdaLR {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LambdaLR")
            .field("initial", &self.initial)
            .field("last_epoch", &self.last_epoch)
            .field("last_lr", &self.last_lr)
            .finish_non_exhaustive()
    }
}

/// Raises the learning rate linearly from 0 over `warmup` steps, then lowers it
/// linearly to 0 at step `total`.
///
/// Steps are the schedule's own: a prepared schedule makes one per process and
/// optimizer step, so count `total` over the loader before it is prepared.
///
/// # Source
/// `transformers.get_linear_schedule_with_warmup`.
pub fn linear_schedule_with_warmup<O>(optimizer: &O, warmup: u64, total: u64) -> LambdaLR
where
    O: Optimizer + ?Sized,
{
    LambdaLR::new(optimizer, move |step| {
        if step < warmup {
            step as f64 / warmup.max(1) as f64
        } else {
            let left = total as f64 - step as f64;
            let falling = total.saturating_sub(warmup).max(1);
            (left / falling as f64).max(0.0)
        }
    })
}
