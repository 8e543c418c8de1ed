use std::num::NonZeroU64;

use super::rule::{Moment, RateRule, Schedule};
use crate::optim::Optimizer;
use crate::optim::group::non_negative;
use crate::{Error, Result};

/// The rule of [`StepLR`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepRule {
    step_size: NonZeroU64,
    gamma: f64,
}

/// Multiplies the learning rate with `gamma` every `step_size` steps.
///
/// # Source
/// `torch.optim.lr_scheduler.StepLR`.
pub type StepLR = Schedule<StepRule>;

impl StepLR {
    /// A schedule for `optimizer`.
    pub fn new<O: Optimizer + ?Sized>(optimizer: &O, step_size: NonZeroU64, gamma: f64) -> Self {
        Self::with_rule(optimizer, StepRule { step_size, gamma })
    }
}

impl RateRule for StepRule {
    const NAME: &'static str = "StepLR";

    fn rate(&self, at: Moment) -> f64 {
        match at.step % self.step_size {
            0 => at.current * self.gamma,
            _ => at.current,
        }
    }
}

/// The rule of [`MultiStepLR`].
#[derive(Debug, Clone, PartialEq)]
pub struct MultiStepRule {
    milestones: Vec<u64>,
    gamma: f64,
}

/// Multiplies the learning rate with `gamma` at each milestone, once for each time that it is listed.
///
/// # Source
/// `torch.optim.lr_scheduler.MultiStepLR`.
pub type MultiStepLR = Schedule<MultiStepRule>;

impl MultiStepLR {
    /// A schedule for `optimizer`.
    pub fn new<O: Optimizer + ?Sized>(optimizer: &O, milestones: Vec<u64>, gamma: f64) -> Self {
        Self::with_rule(optimizer, MultiStepRule { milestones, gamma })
    }
}

impl RateRule for MultiStepRule {
    const NAME: &'static str = "MultiStepLR";

    fn first(&self, at: Moment) -> f64 {
        self.rate(at)
    }

    fn rate(&self, at: Moment) -> f64 {
        match self.milestones.iter().filter(|&&m| m == at.step).count() {
            0 => at.current,
            times => at.current * self.gamma.powf(times as f64),
        }
    }

    fn length(&self) -> Option<u64> {
        self.milestones.iter().max().copied()
    }
}

/// The rule of [`ExponentialLR`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExponentialRule {
    gamma: f64,
}

/// Multiplies the learning rate with `gamma` at each step.
///
/// # Source
/// `torch.optim.lr_scheduler.ExponentialLR`.
pub type ExponentialLR = Schedule<ExponentialRule>;

impl ExponentialLR {
    /// A schedule for `optimizer`.
    pub fn new<O: Optimizer + ?Sized>(optimizer: &O, gamma: f64) -> Self {
        Self::with_rule(optimizer, ExponentialRule { gamma })
    }
}

impl RateRule for ExponentialRule {
    const NAME: &'static str = "ExponentialLR";

    fn rate(&self, at: Moment) -> f64 {
        at.current * self.gamma
    }
}

/// The rule of [`ConstantLR`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConstantRule {
    factor: f64,
    total_iters: u64,
}

/// Multiplies the initial learning rate with a factor up to step `total_iters`.
///
/// # Source
/// `torch.optim.lr_scheduler.ConstantLR`.
pub type ConstantLR = Schedule<ConstantRule>;

impl ConstantLR {
    /// A schedule for `optimizer`.
    ///
    /// # Errors
    /// [`Error::Argument`] if the factor is not above 0 and at most 1.
    pub fn new<O>(optimizer: &O, factor: f64, total_iters: u64) -> Result<Self>
    where
        O: Optimizer + ?Sized,
    {
        share("ConstantLR.factor", factor)?;
        let rule = ConstantRule {
            factor,
            total_iters,
        };
        Ok(Self::with_rule(optimizer, rule))
    }
}

impl RateRule for ConstantRule {
    const NAME: &'static str = "ConstantLR";

    fn first(&self, at: Moment) -> f64 {
        at.current * self.factor
    }

    fn rate(&self, at: Moment) -> f64 {
        if at.step == self.total_iters {
            at.current * (1.0 / self.factor)
        } else {
            at.current
        }
    }

    fn length(&self) -> Option<u64> {
        Some(self.total_iters)
    }
}

/// The rule of [`LinearLR`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearRule {
    start: f64,
    end: f64,
    total_iters: u64,
}

/// Moves the learning rate in equal parts from `start_factor` to `end_factor` times the initial one.
///
/// # Source
/// `torch.optim.lr_scheduler.LinearLR`.
pub type LinearLR = Schedule<LinearRule>;

impl LinearLR {
    /// A schedule for `optimizer` that is at its end after `total_iters` steps.
    ///
    /// # Errors
    /// [`Error::Argument`] if a factor is not at most 1, or the first is not above 0 or
    /// the second below 0.
    pub fn new<O>(
        optimizer: &O,
        start_factor: f64,
        end_factor: f64,
        total_iters: u64,
    ) -> Result<Self>
    where
        O: Optimizer + ?Sized,
    {
        share("LinearLR.start_factor", start_factor)?;
        if end_factor != 0.0 {
            share("LinearLR.end_factor", end_factor)?;
        }
        let rule = LinearRule {
            start: start_factor,
            end: end_factor,
            total_iters,
        };
        Ok(Self::with_rule(optimizer, rule))
    }
}

impl RateRule for LinearRule {
    const NAME: &'static str = "LinearLR";

    fn first(&self, at: Moment) -> f64 {
        at.current * self.start
    }

    fn rate(&self, at: Moment) -> f64 {
        if at.step > self.total_iters {
            return at.current;
        }
        let rise = self.end - self.start;
        let before = self.total_iters as f64 * self.start + (at.step - 1) as f64 * rise;
        at.current * (1.0 + rise / before)
    }

    fn length(&self) -> Option<u64> {
        Some(self.total_iters)
    }
}

/// The rule of [`PolynomialLR`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PolynomialRule {
    total_iters: u64,
    power: f64,
}

/// Lowers the learning rate to 0 by a power of the share of steps that is left.
///
/// # Source
/// `torch.optim.lr_scheduler.PolynomialLR`.
pub type PolynomialLR = Schedule<PolynomialRule>;

impl PolynomialLR {
    /// A schedule for `optimizer` that is at 0 after `total_iters` steps.
    ///
    /// # Errors
    /// [`Error::Argument`] if the power is below 0.
    pub fn new<O>(optimizer: &O, total_iters: u64, power: f64) -> Result<Self>
    where
        O: Optimizer + ?Sized,
    {
        non_negative("PolynomialLR.power", power)?;
        Ok(Self::with_rule(
            optimizer,
            PolynomialRule { total_iters, power },
        ))
    }
}

impl RateRule for PolynomialRule {
    const NAME: &'static str = "PolynomialLR";

    fn rate(&self, at: Moment) -> f64 {
        if at.step > self.total_iters {
            return at.current;
        }
        let total = self.total_iters as f64;
        let left = |step: u64| 1.0 - step as f64 / total;
        at.current * (left(at.step) / left(at.step - 1)).powf(self.power)
    }

    fn length(&self) -> Option<u64> {
        Some(self.total_iters)
    }
}

/// `value`, if it is above 0 and at most 1.
fn share(field: &'static str, value: f64) -> Result<f64> {
    if value > 0.0 && value <= 1.0 {
        return Ok(value);
    }
    Err(Error::Argument {
        operation: field,
        expected: "a number above 0 and at most 1".into(),
        found: value.to_string(),
    })
}
