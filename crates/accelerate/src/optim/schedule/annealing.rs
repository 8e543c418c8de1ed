use std::f64::consts::PI;
use std::num::NonZeroU64;

use super::rule::{Moment, RateRule, Schedule};
use crate::optim::Optimizer;

/// The rule of [`CosineAnnealingLR`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CosineAnnealingRule {
    half_wave: NonZeroU64,
    eta_min: f64,
}

/// Lowers the learning rate along a cosine to `eta_min` in `t_max` steps, and up again.
///
/// # Source
/// `torch.optim.lr_scheduler.CosineAnnealingLR`: each rate follows from the one before.
pub type CosineAnnealingLR = Schedule<CosineAnnealingRule>;

impl CosineAnnealingLR {
    /// A schedule for `optimizer`.
    pub fn new<O>(optimizer: &O, t_max: NonZeroU64, eta_min: f64) -> Self
    where
        O: Optimizer + ?Sized,
    {
        let rule = CosineAnnealingRule {
            half_wave: t_max,
            eta_min,
        };
        Self::with_rule(optimizer, rule)
    }
}

impl RateRule for CosineAnnealingRule {
    const NAME: &'static str = "CosineAnnealingLR";

    fn rate(&self, at: Moment) -> f64 {
        let whole = self.half_wave.get();
        let half_wave = whole as f64;
        let height = |step: u64| 1.0 + (PI * step as f64 / half_wave).cos();
        // At the bottom the ratio below would be 0 over 0. The first bottom is at step `t_max`.
        let at_bottom = at.step > whole && (at.step - 1 - whole).is_multiple_of(2 * whole);
        if at_bottom {
            let range = at.initial - self.eta_min;
            return at.current + range * (1.0 - (PI / half_wave).cos()) / 2.0;
        }
        height(at.step) / height(at.step - 1) * (at.current - self.eta_min) + self.eta_min
    }

    fn anew(&self, at: Moment) -> f64 {
        self.eta_min + (at.initial - self.eta_min) * 2.0 / 2.0
    }

    fn length(&self) -> Option<u64> {
        Some(self.half_wave.get())
    }
}

/// The rule of [`CosineAnnealingWarmRestarts`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmRestartsRule {
    first: NonZeroU64,
    growth: NonZeroU64,
    eta_min: f64,
}

/// Lowers the learning rate along a cosine to `eta_min`, jumps back, and takes
/// `t_mult` times as long at each turn.
///
/// # Source
/// `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`.
pub type CosineAnnealingWarmRestarts = Schedule<WarmRestartsRule>;

impl CosineAnnealingWarmRestarts {
    /// A schedule for `optimizer` with `t_0` steps before the first restart.
    pub fn new<O>(optimizer: &O, t_0: NonZeroU64, t_mult: NonZeroU64, eta_min: f64) -> Self
    where
        O: Optimizer + ?Sized,
    {
        let rule = WarmRestartsRule {
            first: t_0,
            growth: t_mult,
            eta_min,
        };
        Self::with_rule(optimizer, rule)
    }
}

impl WarmRestartsRule {
    /// How far the turn of a step is, and how long it takes.
    fn turn(&self, step: u64) -> (u64, u64) {
        let (mut left, mut length) = (step, self.first.get());
        if self.growth.get() == 1 {
            return (left % length, length);
        }
        while left >= length {
            left -= length;
            length = length.saturating_mul(self.growth.get());
        }
        (left, length)
    }
}

impl RateRule for WarmRestartsRule {
    const NAME: &'static str = "CosineAnnealingWarmRestarts";

    fn first(&self, at: Moment) -> f64 {
        self.rate(at)
    }

    fn rate(&self, at: Moment) -> f64 {
        let (passed, length) = self.turn(at.step);
        let height = 1.0 + (PI * passed as f64 / length as f64).cos();
        self.eta_min + (at.initial - self.eta_min) * height / 2.0
    }
}
