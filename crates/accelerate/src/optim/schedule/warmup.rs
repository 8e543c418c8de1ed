//! The schedules of transformers: all begin with a linear warm-up.

use std::f64::consts::PI;

use super::lambda::LambdaLR;
use crate::optim::Optimizer;
use crate::optim::group::non_negative;
use crate::{Error, Result};

/// The share of the warm-up that has passed, if it has not ended.
fn warming(step: u64, warmup: u64) -> Option<f64> {
    (step < warmup).then(|| step as f64 / warmup.max(1) as f64)
}

/// The share of the steps after the warm-up that has passed; above 1 after the end.
fn progress(step: u64, warmup: u64, total: u64) -> f64 {
    let after = total as f64 - warmup as f64;
    (step as f64 - warmup as f64) / after.max(1.0)
}

/// `cycles` waves of a cosine, from 1 down to 0 and up again.
fn wave(cycles: f64, progress: f64) -> f64 {
    0.5 * (1.0 + (PI * cycles * 2.0 * progress).cos())
}

/// Keeps the initial learning rate.
///
/// # Source
/// `transformers.get_constant_schedule`.
pub fn constant_schedule<O: Optimizer + ?Sized>(optimizer: &O) -> LambdaLR {
    LambdaLR::new(optimizer, |_| 1.0)
}

/// Raises the learning rate linearly from 0 over `warmup` steps, then keeps it.
///
/// # Source
/// `transformers.get_constant_schedule_with_warmup`.
pub fn constant_schedule_with_warmup<O>(optimizer: &O, warmup: u64) -> LambdaLR
where
    O: Optimizer + ?Sized,
{
    LambdaLR::new(optimizer, move |step| warming(step, warmup).unwrap_or(1.0))
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
    LambdaLR::with_length(optimizer, total, move |step| {
        warming(step, warmup).unwrap_or_else(|| {
            let left = total as f64 - step as f64;
            let falling = total.saturating_sub(warmup).max(1);
            (left / falling as f64).max(0.0)
        })
    })
}

/// Raises the learning rate linearly from 0 over `warmup` steps, then lets it follow
/// `num_cycles` waves of a cosine until step `total`; half a wave ends at 0.
///
/// # Source
/// `transformers.get_cosine_schedule_with_warmup`.
pub fn cosine_schedule_with_warmup<O>(
    optimizer: &O,
    warmup: u64,
    total: u64,
    num_cycles: f64,
) -> LambdaLR
where
    O: Optimizer + ?Sized,
{
    LambdaLR::with_length(optimizer, total, move |step| {
        warming(step, warmup)
            .unwrap_or_else(|| wave(num_cycles, progress(step, warmup, total)).max(0.0))
    })
}

/// Raises the learning rate linearly from 0 over `warmup` steps, then lowers it to 0 along
/// a cosine `num_cycles` times, with a jump back in between; it stays at 0 from step `total` on.
///
/// # Source
/// `transformers.get_cosine_with_hard_restarts_schedule_with_warmup`.
pub fn cosine_with_hard_restarts_schedule_with_warmup<O>(
    optimizer: &O,
    warmup: u64,
    total: u64,
    num_cycles: u64,
) -> LambdaLR
where
    O: Optimizer + ?Sized,
{
    LambdaLR::with_length(optimizer, total, move |step| {
        warming(step, warmup).unwrap_or_else(|| {
            let progress = progress(step, warmup, total);
            if progress >= 1.0 {
                return 0.0;
            }
            let turn = (num_cycles as f64 * progress) % 1.0;
            (0.5 * (1.0 + (PI * turn).cos())).max(0.0)
        })
    })
}

/// Raises the learning rate linearly from 0 over `warmup` steps, then lowers it to `lr_end`
/// at step `total` by a power of the share of steps that is left.
///
/// # Errors
/// [`Error::Argument`] if the optimizer's learning rate is not above `lr_end`.
///
/// # Source
/// `transformers.get_polynomial_decay_schedule_with_warmup`.
pub fn polynomial_decay_schedule_with_warmup<O>(
    optimizer: &O,
    warmup: u64,
    total: u64,
    lr_end: f64,
    power: f64,
) -> Result<LambdaLR>
where
    O: Optimizer + ?Sized,
{
    let initial = optimizer.groups().default_lr();
    if lr_end.is_nan() || initial <= lr_end {
        return Err(Error::Argument {
            operation: "polynomial_decay_schedule_with_warmup",
            expected: format!("`lr_end` below the optimizer's learning rate of {initial}"),
            found: lr_end.to_string(),
        });
    }
    let factor = move |step: u64| {
        if step > total {
            return lr_end / initial;
        }
        let falling = total as f64 - warmup as f64;
        let passed = match falling {
            0.0 => 1.0,
            _ => (step as f64 - warmup as f64) / falling,
        };
        ((initial - lr_end) * (1.0 - passed).powf(power) + lr_end) / initial
    };
    Ok(LambdaLR::with_length(optimizer, total, move |step| {
        warming(step, warmup).unwrap_or_else(|| factor(step))
    }))
}

/// Raises the learning rate linearly from 0 over `warmup` steps, then lowers it with the
/// square root of the step; `timescale` is the number of steps that counts as one, the
/// warm-up's if `None`, or 10,000 without warm-up.
///
/// # Source
/// `transformers.get_inverse_sqrt_schedule`.
pub fn inverse_sqrt_schedule<O>(optimizer: &O, warmup: u64, timescale: Option<u64>) -> LambdaLR
where
    O: Optimizer + ?Sized,
{
    let timescale = match (timescale, warmup) {
        (Some(timescale), _) => timescale,
        (None, 0) => 10_000,
        (None, warmup) => warmup,
    } as f64;
    let shift = timescale - warmup as f64;
    LambdaLR::new(optimizer, move |step| {
        warming(step, warmup).unwrap_or_else(|| 1.0 / ((step as f64 + shift) / timescale).sqrt())
    })
}

/// As [`cosine_schedule_with_warmup`], down to `min_lr_rate` times the initial learning rate.
///
/// # Source
/// `transformers.get_cosine_with_min_lr_schedule_with_warmup`; for its `min_lr` give
/// `min_lr / lr`.
pub fn cosine_with_min_lr_schedule_with_warmup<O>(
    optimizer: &O,
    warmup: u64,
    total: u64,
    num_cycles: f64,
    min_lr_rate: f64,
) -> LambdaLR
where
    O: Optimizer + ?Sized,
{
    LambdaLR::with_length(optimizer, total, move |step| {
        warming(step, warmup).unwrap_or_else(|| {
            let height = wave(num_cycles, progress(step, warmup, total));
            (height * (1.0 - min_lr_rate) + min_lr_rate).max(0.0)
        })
    })
}

/// As [`cosine_with_min_lr_schedule_with_warmup`], but one step ahead: the warm-up begins at
/// `warmup_lr_rate` times the initial learning rate, or at one step's share of it if `None`.
///
/// # Source
/// `transformers.get_cosine_with_min_lr_schedule_with_warmup_lr_rate`.
pub fn cosine_with_min_lr_schedule_with_warmup_lr_rate<O>(
    optimizer: &O,
    warmup: u64,
    total: u64,
    num_cycles: f64,
    min_lr_rate: f64,
    warmup_lr_rate: Option<f64>,
) -> LambdaLR
where
    O: Optimizer + ?Sized,
{
    LambdaLR::with_length(optimizer, total, move |step| {
        let (at, warming) = (step as f64, warmup as f64);
        if step < warmup {
            return match warmup_lr_rate {
                None => (at + 1.0) / warming.max(1.0),
                Some(start) => start + (1.0 - start) * at / (warming - 1.0).max(1.0),
            };
        }
        let passed = (at - warming + 1.0) / (total as f64 - warming).max(1.0);
        (wave(num_cycles, passed) * (1.0 - min_lr_rate) + min_lr_rate).max(0.0)
    })
}

/// The line of a stage of [`wsd_schedule`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A straight line.
    Linear,
    /// A cosine.
    Cosine,
    /// One minus a square root.
    OneMinusSqrt,
}

/// The stages of [`wsd_schedule`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WsdConfig {
    /// The number of steps that rise.
    pub num_warmup_steps: u64,
    /// The number of steps that stay.
    pub num_stable_steps: u64,
    /// The number of steps that fall.
    pub num_decay_steps: u64,
    /// The line up.
    pub warmup_type: Shape,
    /// The line down.
    pub decay_type: Shape,
    /// The share of the initial learning rate at both ends.
    pub min_lr_ratio: f64,
    /// The number of cosine waves on the way down; half a wave ends at the least rate.
    pub num_cycles: f64,
}

impl WsdConfig {
    /// The defaults of transformers for stages of these lengths.
    #[must_use]
    pub fn new(num_warmup_steps: u64, num_stable_steps: u64, num_decay_steps: u64) -> Self {
        Self {
            num_warmup_steps,
            num_stable_steps,
            num_decay_steps,
            warmup_type: Shape::Linear,
            decay_type: Shape::Cosine,
            min_lr_ratio: 0.0,
            num_cycles: 0.5,
        }
    }

    fn factor(&self, step: u64) -> f64 {
        let from_least = |height: f64| {
            let height = height * (1.0 - self.min_lr_ratio) + self.min_lr_ratio;
            height.max(0.0)
        };
        if let Some(passed) = warming(step, self.num_warmup_steps) {
            return from_least(match self.warmup_type {
                Shape::Linear => passed,
                Shape::Cosine => 0.5 * (1.0 - (PI * passed).cos()),
                Shape::OneMinusSqrt => 1.0 - (1.0 - passed).sqrt(),
            });
        }
        let falling_from = self.num_warmup_steps + self.num_stable_steps;
        if step < falling_from {
            return 1.0;
        }
        if step >= falling_from + self.num_decay_steps {
            return self.min_lr_ratio;
        }
        let passed = (step - falling_from) as f64 / self.num_decay_steps.max(1) as f64;
        from_least(match self.decay_type {
            Shape::Linear => 1.0 - passed,
            Shape::Cosine => wave(self.num_cycles, passed),
            Shape::OneMinusSqrt => 1.0 - passed.sqrt(),
        })
    }
}

/// Raises the learning rate, keeps it, and lowers it.
///
/// # Errors
/// [`Error::Argument`] if the share at the ends is below 0.
///
/// # Source
/// `transformers.get_wsd_schedule`.
pub fn wsd_schedule<O>(optimizer: &O, config: WsdConfig) -> Result<LambdaLR>
where
    O: Optimizer + ?Sized,
{
    non_negative("WsdConfig.min_lr_ratio", config.min_lr_ratio)?;
    let length = config.num_warmup_steps + config.num_stable_steps + config.num_decay_steps;
    Ok(LambdaLR::with_length(optimizer, length, move |step| {
        config.factor(step)
    }))
}
