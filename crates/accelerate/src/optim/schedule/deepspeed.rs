use std::f64::consts::PI;
use std::num::NonZeroU64;

use super::rule::{Moment, RateRule, Schedule};
use crate::optim::Optimizer;

/// How DeepSpeed's schedules grow while they warm up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WarmupGrowth {
    /// With the logarithm of the step.
    #[default]
    Log,
    /// With the step.
    Linear,
}

impl WarmupGrowth {
    /// The share of the warm-up that has passed at an iteration counted from 0.
    fn share(self, iteration: u64, steps: u64) -> f64 {
        match self {
            Self::Log => 1.0 / (steps as f64).ln() * ((iteration + 1) as f64).ln(),
            Self::Linear => iteration as f64 / steps as f64,
        }
    }
}

/// Settings of [`WarmupLR`] and [`WarmupDecayLR`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmupConfig {
    /// The learning rate at the beginning.
    pub warmup_min_lr: f64,
    /// The learning rate after warming up; `None` takes that of the optimizer's first group.
    pub warmup_max_lr: Option<f64>,
    /// The number of steps for warming up; 1 counts as 2.
    pub warmup_num_steps: NonZeroU64,
    /// How the rate grows.
    pub warmup_type: WarmupGrowth,
}

impl Default for WarmupConfig {
    fn default() -> Self {
        Self {
            warmup_min_lr: 0.0,
            warmup_max_lr: None,
            warmup_num_steps: NonZeroU64::MIN.saturating_add(999),
            warmup_type: WarmupGrowth::Log,
        }
    }
}

/// The rule of [`WarmupLR`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmupRule {
    min: f64,
    range: f64,
    steps: u64,
    growth: WarmupGrowth,
}

impl WarmupRule {
    fn new<O: Optimizer + ?Sized>(optimizer: &O, config: WarmupConfig) -> Self {
        let own = optimizer.learning_rates().get(0).unwrap_or_default();
        Self {
            min: config.warmup_min_lr,
            range: config.warmup_max_lr.unwrap_or(own) - config.warmup_min_lr,
            steps: config.warmup_num_steps.get().max(2),
            growth: config.warmup_type,
        }
    }

    /// The rate at an iteration counted from 0, where `after` is the share after warming up.
    fn at(&self, iteration: u64, after: f64) -> f64 {
        let share = match iteration < self.steps {
            true => self.growth.share(iteration, self.steps),
            false => after,
        };
        self.min + self.range * share
    }
}

/// DeepSpeed's schedule that warms up and then stays.
///
/// As there, making it sets the least rate, and the first step sets it once more.
///
/// # Source
/// `WarmupLR` in `deepspeed/runtime/lr_schedules.py`, as of commit 22779f2.
pub type WarmupLR = Schedule<WarmupRule>;

impl WarmupLR {
    /// A schedule for `optimizer`.
    pub fn new<O: Optimizer + ?Sized>(optimizer: &O, config: WarmupConfig) -> Self {
        Self::with_rule(optimizer, WarmupRule::new(optimizer, config))
    }
}

impl RateRule for WarmupRule {
    const NAME: &'static str = "WarmupLR";

    fn first(&self, _at: Moment) -> f64 {
        self.min
    }

    fn rate(&self, at: Moment) -> f64 {
        self.at(at.step - 1, 1.0)
    }

    fn length(&self) -> Option<u64> {
        Some(self.steps + 1)
    }
}

/// The rule of [`WarmupDecayLR`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmupDecayRule {
    warmup: WarmupRule,
    total: u64,
}

/// DeepSpeed's schedule that warms up and then falls to 0 in a straight line.
///
/// # Source
/// `WarmupDecayLR`, as [`WarmupLR`].
pub type WarmupDecayLR = Schedule<WarmupDecayRule>;

impl WarmupDecayLR {
    /// A schedule for `optimizer` that is at 0 after `total_num_steps`.
    pub fn new<O>(optimizer: &O, total_num_steps: u64, config: WarmupConfig) -> Self
    where
        O: Optimizer + ?Sized,
    {
        let rule = WarmupDecayRule {
            warmup: WarmupRule::new(optimizer, config),
            total: total_num_steps,
        };
        Self::with_rule(optimizer, rule)
    }
}

impl RateRule for WarmupDecayRule {
    const NAME: &'static str = "WarmupDecayLR";

    fn first(&self, _at: Moment) -> f64 {
        self.warmup.min
    }

    fn rate(&self, at: Moment) -> f64 {
        let (iteration, total) = (at.step - 1, self.total as f64);
        let falling = (total - self.warmup.steps as f64).max(1.0);
        let left = ((total - iteration as f64) / falling).max(0.0);
        self.warmup.at(iteration, left)
    }

    fn length(&self) -> Option<u64> {
        Some(self.total + 1)
    }
}

/// Settings of [`WarmupCosineLR`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmupCosineConfig {
    /// The share of the optimizer's rate at the beginning.
    pub warmup_min_ratio: f64,
    /// The number of steps for warming up; 1 counts as 2.
    pub warmup_num_steps: NonZeroU64,
    /// The share of the optimizer's rate at the end.
    pub cos_min_ratio: f64,
    /// How the rate grows.
    pub warmup_type: WarmupGrowth,
}

impl Default for WarmupCosineConfig {
    fn default() -> Self {
        Self {
            warmup_min_ratio: 0.0,
            warmup_num_steps: NonZeroU64::MIN.saturating_add(999),
            cos_min_ratio: 1e-4,
            warmup_type: WarmupGrowth::Log,
        }
    }
}

/// The rule of [`WarmupCosineLR`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmupCosineRule {
    config: WarmupCosineConfig,
    steps: u64,
    total: u64,
}

/// DeepSpeed's schedule that warms up to the optimizer's own rates and then falls along a cosine.
///
/// As there, making it sets rates of 0.
///
/// # Source
/// `WarmupCosineLR`, as [`WarmupLR`].
pub type WarmupCosineLR = Schedule<WarmupCosineRule>;

impl WarmupCosineLR {
    /// A schedule for `optimizer` that is at its least rate after `total_num_steps`.
    pub fn new<O>(optimizer: &O, total_num_steps: u64, config: WarmupCosineConfig) -> Self
    where
        O: Optimizer + ?Sized,
    {
        let rule = WarmupCosineRule {
            config,
            steps: config.warmup_num_steps.get().max(2),
            total: total_num_steps,
        };
        Self::with_rule(optimizer, rule)
    }
}

impl RateRule for WarmupCosineRule {
    const NAME: &'static str = "WarmupCosineLR";

    fn first(&self, _at: Moment) -> f64 {
        0.0
    }

    fn rate(&self, at: Moment) -> f64 {
        let iteration = at.step - 1;
        let config = &self.config;
        if iteration < self.steps {
            let share = config.warmup_type.share(iteration, self.steps);
            let ratio = config.warmup_min_ratio + share * (1.0 - config.warmup_min_ratio);
            return at.initial * ratio;
        }
        let falling = (self.total as f64 - self.steps as f64).max(1.0);
        let passed = ((iteration - self.steps + 1) as f64 / falling).min(1.0);
        let height = (1.0 + (PI * passed).cos()) / 2.0;
        let ratio = config.cos_min_ratio + (1.0 - config.cos_min_ratio) * height;
        at.initial * ratio.max(0.0)
    }

    fn length(&self) -> Option<u64> {
        Some(self.total)
    }
}

/// Settings of [`OneCycle`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OneCycleConfig {
    /// The least learning rate of the cycle.
    pub cycle_min_lr: f64,
    /// The largest learning rate of the cycle.
    pub cycle_max_lr: f64,
    /// How fast the rate falls after the cycle; 0 for not at all.
    pub decay_lr_rate: f64,
    /// The number of steps in which the rate rises.
    pub cycle_first_step_size: NonZeroU64,
    /// The number of steps in which it falls, if another.
    pub cycle_second_step_size: Option<NonZeroU64>,
    /// The number of stairs up; 0 for a straight line.
    pub cycle_first_stair_count: u64,
    /// The number of stairs down, if another.
    pub cycle_second_stair_count: Option<u64>,
    /// After how many steps the decay counts once; 0 for no decay.
    pub decay_step_size: u64,
    /// The least and the largest momentum, which falls where the rate rises; `None` leaves
    /// the momentum alone.
    pub cycle_momentum: Option<(f64, f64)>,
    /// How fast the momentum moves after the cycle; 0 for not at all.
    pub decay_mom_rate: f64,
}

impl OneCycleConfig {
    /// DeepSpeed's settings for a cycle between two rates.
    #[must_use]
    pub fn new(cycle_min_lr: f64, cycle_max_lr: f64) -> Self {
        Self {
            cycle_min_lr,
            cycle_max_lr,
            decay_lr_rate: 0.0,
            cycle_first_step_size: NonZeroU64::MIN.saturating_add(1999),
            cycle_second_step_size: None,
            cycle_first_stair_count: 0,
            cycle_second_stair_count: None,
            decay_step_size: 0,
            cycle_momentum: Some((0.8, 0.9)),
            decay_mom_rate: 0.0,
        }
    }

    fn sizes(&self) -> (f64, f64) {
        let first = self.cycle_first_step_size;
        let second = self.cycle_second_step_size.unwrap_or(first);
        (first.get() as f64, second.get() as f64)
    }

    /// How high in the cycle a step is, from 0 to 1.
    fn height(&self, step: f64) -> f64 {
        let (first, second) = self.sizes();
        let total = first + second;
        let turn = first / total;
        let cycle = (1.0 + step / total).floor();
        let passed = 1.0 + step / total - cycle;
        let (height, stairs) = if passed <= turn {
            (passed / turn, self.cycle_first_stair_count)
        } else {
            let stairs = self.cycle_second_stair_count;
            let stairs = stairs.unwrap_or(self.cycle_first_stair_count);
            ((passed - 1.0) / (turn - 1.0), stairs)
        };
        if stairs == 0 {
            return height;
        }
        // From whole steps: the height itself can lie just under a stair.
        let (step, stairs) = (step % total, stairs as f64);
        let stair = if step <= first {
            step * stairs / first
        } else {
            (total - step) * stairs / second
        };
        stair.floor() / stairs
    }

    /// How many times the decay has counted at a step, if that is after the cycle.
    fn decays(&self, step: u64) -> Option<f64> {
        let (first, second) = self.sizes();
        let passed = step as f64 - (first + second);
        let after = passed >= 1.0;
        let size = self.decay_step_size;
        after.then(|| if size == 0 { 0.0 } else { passed / size as f64 })
    }
}

/// The rule of [`OneCycle`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OneCycleRule {
    config: OneCycleConfig,
}

/// DeepSpeed's schedule of one cycle up and down, then a decay.
///
/// As there, making it sets the least momentum, which the first step puts near the largest.
///
/// # Source
/// `OneCycle`, as [`WarmupLR`]. Differs: the second beta is left alone, where the
/// original sets it to 0.99; plain momentum is moved too; an optimizer with neither is
/// left alone silently.
pub type OneCycle = Schedule<OneCycleRule>;

impl OneCycle {
    /// A schedule for `optimizer`.
    pub fn new<O: Optimizer + ?Sized>(optimizer: &O, config: OneCycleConfig) -> Self {
        Self::with_rule(optimizer, OneCycleRule { config })
    }
}

impl RateRule for OneCycleRule {
    const NAME: &'static str = "OneCycle";

    fn first(&self, _at: Moment) -> f64 {
        self.config.cycle_min_lr
    }

    fn rate(&self, at: Moment) -> f64 {
        let config = &self.config;
        match config.decays(at.step) {
            Some(times) => config.cycle_min_lr / (1.0 + config.decay_lr_rate * times),
            None => {
                let range = config.cycle_max_lr - config.cycle_min_lr;
                config.cycle_min_lr + range * config.height(at.step as f64)
            }
        }
    }

    fn momentum(&self, at: Moment) -> Option<f64> {
        let (least, largest) = self.config.cycle_momentum?;
        if at.step == 0 {
            return Some(least);
        }
        Some(match self.config.decays(at.step) {
            Some(times) => largest * (1.0 + self.config.decay_mom_rate * times),
            None => largest - (largest - least) * self.config.height(at.step as f64),
        })
    }
}

/// Settings of [`LRRangeTest`], and its rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LRRangeTestConfig {
    /// The learning rate at the beginning.
    pub lr_range_test_min_lr: f64,
    /// After how many steps the rate has grown by `lr_range_test_step_rate` times its beginning.
    pub lr_range_test_step_size: NonZeroU64,
    /// How much it grows.
    pub lr_range_test_step_rate: f64,
    /// Grows in stairs instead of at each step.
    pub lr_range_test_staircase: bool,
}

impl Default for LRRangeTestConfig {
    fn default() -> Self {
        Self {
            lr_range_test_min_lr: 1e-3,
            lr_range_test_step_size: NonZeroU64::MIN.saturating_add(1999),
            lr_range_test_step_rate: 1.0,
            lr_range_test_staircase: false,
        }
    }
}

/// DeepSpeed's search for the largest learning rate that still trains.
///
/// # Source
/// `LRRangeTest`, as [`WarmupLR`].
pub type LRRangeTest = Schedule<LRRangeTestConfig>;

impl LRRangeTest {
    /// A schedule for `optimizer`.
    pub fn new<O: Optimizer + ?Sized>(optimizer: &O, config: LRRangeTestConfig) -> Self {
        Self::with_rule(optimizer, config)
    }
}

impl RateRule for LRRangeTestConfig {
    const NAME: &'static str = "LRRangeTest";

    fn first(&self, _at: Moment) -> f64 {
        self.lr_range_test_min_lr
    }

    fn rate(&self, at: Moment) -> f64 {
        let passed = at.step as f64 / self.lr_range_test_step_size.get() as f64;
        let passed = if self.lr_range_test_staircase {
            passed.floor()
        } else {
            passed
        };
        self.lr_range_test_min_lr * (1.0 + self.lr_range_test_step_rate * passed)
    }
}
