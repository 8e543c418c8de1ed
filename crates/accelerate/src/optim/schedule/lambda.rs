use std::fmt;

use super::rule::{Moment, RateRule, Schedule};
use crate::optim::Optimizer;
use crate::{Error, Result};

/// A function of the step, counted from 0.
type Factor = Box<dyn Fn(u64) -> f64>;

/// The rule of [`LambdaLR`].
pub struct LambdaRule {
    factors: Vec<Factor>,
    length: Option<u64>,
}

/// Multiplies each group's initial learning rate with a function of the step.
///
/// # Source
/// `torch.optim.lr_scheduler.LambdaLR`.
pub type LambdaLR = Schedule<LambdaRule>;

impl LambdaLR {
    /// One function for all groups of `optimizer`.
    pub fn new<O>(optimizer: &O, factor: impl Fn(u64) -> f64 + 'static) -> Self
    where
        O: Optimizer + ?Sized,
    {
        Self::ending(optimizer, None, factor)
    }

    /// One function for all groups of `optimizer`, which stays the same from step `length` on.
    pub fn with_length<O>(optimizer: &O, length: u64, factor: impl Fn(u64) -> f64 + 'static) -> Self
    where
        O: Optimizer + ?Sized,
    {
        Self::ending(optimizer, Some(length), factor)
    }

    fn ending<O>(optimizer: &O, length: Option<u64>, factor: impl Fn(u64) -> f64 + 'static) -> Self
    where
        O: Optimizer + ?Sized,
    {
        let factors: Vec<Factor> = vec![Box::new(factor)];
        Self::with_rule(optimizer, LambdaRule { factors, length })
    }

    /// One function for each group of `optimizer`.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are not as many functions as groups.
    pub fn per_group<O>(optimizer: &O, factors: Vec<Factor>) -> Result<Self>
    where
        O: Optimizer + ?Sized,
    {
        let groups = optimizer.learning_rates().len();
        if factors.len() != groups {
            return Err(Error::Argument {
                operation: "LambdaLR::per_group",
                expected: format!("one function for each of the {groups} groups"),
                found: factors.len().to_string(),
            });
        }
        let length = None;
        Ok(Self::with_rule(optimizer, LambdaRule { factors, length }))
    }
}

impl RateRule for LambdaRule {
    const NAME: &'static str = "LambdaLR";

    fn first(&self, at: Moment) -> f64 {
        self.rate(at)
    }

    fn rate(&self, at: Moment) -> f64 {
        // With one function for all groups it serves each of them.
        let factor = self.factors.get(at.group).or(self.factors.first());
        factor.map_or(at.initial, |factor| at.initial * factor(at.step))
    }

    fn length(&self) -> Option<u64> {
        self.length
    }
}

impl fmt::Debug for LambdaRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LambdaRule")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// The rule of [`MultiplicativeLR`].
pub struct MultiplicativeRule {
    factor: Factor,
}

/// Multiplies the learning rate at each step with a function of the step.
///
/// # Source
/// `torch.optim.lr_scheduler.MultiplicativeLR`, with one function for all groups.
pub type MultiplicativeLR = Schedule<MultiplicativeRule>;

impl MultiplicativeLR {
    /// One function for all groups of `optimizer`; it is first asked for step 1.
    pub fn new<O>(optimizer: &O, factor: impl Fn(u64) -> f64 + 'static) -> Self
    where
        O: Optimizer + ?Sized,
    {
        let factor = Box::new(factor);
        Self::with_rule(optimizer, MultiplicativeRule { factor })
    }
}

impl RateRule for MultiplicativeRule {
    const NAME: &'static str = "MultiplicativeLR";

    fn rate(&self, at: Moment) -> f64 {
        at.current * (self.factor)(at.step)
    }
}

impl fmt::Debug for MultiplicativeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiplicativeRule").finish_non_exhaustive()
    }
}
