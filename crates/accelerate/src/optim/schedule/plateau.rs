use super::scheduler::{RatesBefore, Scheduler};
use crate::optim::state_dict::{StateReader, StateValue};
use crate::optim::{LearningRates, Optimizer, StateDict};
use crate::{Error, Result};

/// Which values of the metric are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PlateauMode {
    /// Lower ones, as of a loss.
    #[default]
    Min,
    /// Higher ones, as of an accuracy.
    Max,
}

/// How the threshold for "better" is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThresholdMode {
    /// As a share of the best value.
    #[default]
    Rel,
    /// As a difference to the best value.
    Abs,
}

/// Settings of [`ReduceLROnPlateau`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlateauConfig {
    /// Which values are better.
    pub mode: PlateauMode,
    /// What the learning rate is multiplied with, below 1.
    pub factor: f64,
    /// How many steps without a better value are borne.
    pub patience: u64,
    /// By how much a value must be better to count.
    pub threshold: f64,
    /// How the threshold is meant.
    pub threshold_mode: ThresholdMode,
    /// How many steps after a reduction are not counted.
    pub cooldown: u64,
    /// The least learning rate.
    pub min_lr: f64,
    /// Reductions by no more than this are left out.
    pub eps: f64,
}

impl Default for PlateauConfig {
    fn default() -> Self {
        Self {
            mode: PlateauMode::Min,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            threshold_mode: ThresholdMode::Rel,
            cooldown: 0,
            min_lr: 0.0,
            eps: 1e-8,
        }
    }
}

/// Lowers the learning rate when a metric stops getting better.
///
/// It is moved on by [`step_with_metric`](Scheduler::step_with_metric), once for each value.
///
/// # Source
/// `torch.optim.lr_scheduler.ReduceLROnPlateau`.
#[derive(Debug)]
pub struct ReduceLROnPlateau {
    config: PlateauConfig,
    min_lrs: Vec<f64>,
    rates: LearningRates,
    best: f64,
    bad_steps: u64,
    cooldown_left: u64,
    last_epoch: u64,
    last_lr: Vec<f64>,
}

impl ReduceLROnPlateau {
    /// A schedule for `optimizer`.
    ///
    /// # Errors
    /// [`Error::Argument`] if the factor is not below 1.
    pub fn new<O: Optimizer + ?Sized>(optimizer: &O, config: PlateauConfig) -> Result<Self> {
        if config.factor.is_nan() || config.factor >= 1.0 {
            return Err(Error::Argument {
                operation: "PlateauConfig.factor",
                expected: "a number below 1".into(),
                found: config.factor.to_string(),
            });
        }
        let rates = optimizer.learning_rates().clone();
        Ok(Self {
            min_lrs: vec![config.min_lr; rates.len()],
            best: config.worst(),
            bad_steps: 0,
            cooldown_left: 0,
            last_epoch: 0,
            last_lr: rates.all(),
            rates,
            config,
        })
    }

    /// A least learning rate for each group.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are not as many rates as groups.
    pub fn with_min_lrs(mut self, min_lrs: Vec<f64>) -> Result<Self> {
        if min_lrs.len() != self.rates.len() {
            return Err(Error::Argument {
                operation: "ReduceLROnPlateau::with_min_lrs",
                expected: format!("one rate for each of the {} groups", self.rates.len()),
                found: min_lrs.len().to_string(),
            });
        }
        self.min_lrs = min_lrs;
        Ok(self)
    }

    /// The best value of the metric so far, infinite before the first.
    #[must_use]
    pub fn best(&self) -> f64 {
        self.best
    }

    fn reduce(&self) {
        for (group, (old, least)) in self.rates.all().into_iter().zip(&self.min_lrs).enumerate() {
            let new = (old * self.config.factor).max(*least);
            if old - new > self.config.eps {
                self.rates.set(group, new);
            }
        }
    }
}

impl PlateauConfig {
    fn worst(&self) -> f64 {
        match self.mode {
            PlateauMode::Min => f64::INFINITY,
            PlateauMode::Max => f64::NEG_INFINITY,
        }
    }

    fn is_better(&self, value: f64, best: f64) -> bool {
        let threshold = self.threshold;
        match (self.mode, self.threshold_mode) {
            (PlateauMode::Min, ThresholdMode::Rel) => value < best * (1.0 - threshold),
            (PlateauMode::Min, ThresholdMode::Abs) => value < best - threshold,
            (PlateauMode::Max, ThresholdMode::Rel) => value > best * (threshold + 1.0),
            (PlateauMode::Max, ThresholdMode::Abs) => value > best + threshold,
        }
    }
}

impl Scheduler for ReduceLROnPlateau {
    fn step(&mut self) -> Result<()> {
        Err(Error::Argument {
            operation: "ReduceLROnPlateau",
            expected: "the metric that it watches; call `step_with_metric`".into(),
            found: "a call of `step`".into(),
        })
    }

    fn step_with_metric(&mut self, metric: f64) -> Result<()> {
        self.last_epoch += 1;
        if self.config.is_better(metric, self.best) {
            self.best = metric;
            self.bad_steps = 0;
        } else {
            self.bad_steps += 1;
        }
        if self.cooldown_left > 0 {
            self.cooldown_left -= 1;
            self.bad_steps = 0;
        }
        if self.bad_steps > self.config.patience {
            self.reduce();
            self.cooldown_left = self.config.cooldown;
            self.bad_steps = 0;
        }
        self.last_lr = self.rates.all();
        Ok(())
    }

    fn restart(&mut self, _rates: RatesBefore) -> Result<()> {
        Err(Error::Argument {
            operation: "ReduceLROnPlateau",
            expected: "to stand alone, as it needs a metric at each step".into(),
            found: "a place among other schedules".into(),
        })
    }

    fn last_lr(&self) -> Vec<f64> {
        self.last_lr.clone()
    }

    fn learning_rates(&self) -> &LearningRates {
        &self.rates
    }

    fn step_count(&self) -> u64 {
        self.last_epoch + 1
    }

    fn state_dict(&self) -> StateDict {
        let mut state = StateDict::new();
        state.push("best", StateValue::Float(self.best));
        state.push_count("num_bad_epochs", self.bad_steps);
        state.push_count("cooldown_counter", self.cooldown_left);
        state.push_count("last_epoch", self.last_epoch);
        for (group, &lr) in self.last_lr.iter().enumerate() {
            state.push(format!("group.{group}.last_lr"), StateValue::Float(lr));
        }
        state
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut reader = StateReader::new(state);
        let best = reader.float("best");
        let bad_steps = reader.count("num_bad_epochs");
        let cooldown_left = reader.count("cooldown_counter");
        let last_epoch = reader.count("last_epoch");
        let mut last_lr = Vec::new();
        for group in 0..self.rates.len() {
            last_lr.extend(reader.float(&format!("group.{group}.last_lr")));
        }
        reader.finish("ReduceLROnPlateau")?;
        self.best = best.unwrap_or(self.best);
        self.bad_steps = bad_steps.unwrap_or_default();
        self.cooldown_left = cooldown_left.unwrap_or_default();
        self.last_epoch = last_epoch.unwrap_or_default();
        self.last_lr = last_lr;
        Ok(())
    }
}
