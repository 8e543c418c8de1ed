use std::f64::consts::PI;
use std::num::NonZeroU64;

use super::rule::{Moment, RateRule, Schedule};
use crate::optim::Optimizer;
use crate::{Error, Result};

/// Along which line a one-cycle schedule gets from one rate to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnnealStrategy {
    /// Half a wave of a cosine.
    #[default]
    Cos,
    /// A straight line.
    Linear,
}

impl AnnealStrategy {
    fn between(self, start: f64, end: f64, share: f64) -> f64 {
        match self {
            Self::Cos => end + (start - end) / 2.0 * ((PI * share).cos() + 1.0),
            Self::Linear => (end - start) * share + start,
        }
    }
}

/// Settings of [`OneCycleLR`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OneCycleLRConfig {
    /// The number of steps in the cycle; the schedule refuses to go further.
    pub total_steps: NonZeroU64,
    /// The share of steps in which the rate rises, from 0 to 1.
    pub pct_start: f64,
    /// The line from one rate to the next.
    pub anneal_strategy: AnnealStrategy,
    /// The least and the largest momentum, which falls where the rate rises; `None` leaves
    /// the momentum alone.
    pub momentum: Option<(f64, f64)>,
    /// The initial rate is the largest one divided by this.
    pub div_factor: f64,
    /// The last rate is the initial one divided by this.
    pub final_div_factor: f64,
    /// Lets the rate come down to the initial one as it rose, and then to the last one.
    pub three_phase: bool,
}

impl OneCycleLRConfig {
    /// PyTorch's settings for a cycle of `total_steps`.
    #[must_use]
    pub fn new(total_steps: NonZeroU64) -> Self {
        Self {
            total_steps,
            pct_start: 0.3,
            anneal_strategy: AnnealStrategy::Cos,
            momentum: Some((0.85, 0.95)),
            div_factor: 25.0,
            final_div_factor: 1e4,
            three_phase: false,
        }
    }
}

/// The rule of [`OneCycleLR`].
#[derive(Debug, Clone, PartialEq)]
pub struct OneCycleLRRule {
    config: OneCycleLRConfig,
    max_lrs: Vec<f64>,
}

/// Raises the learning rate to its largest and lowers it far below the initial one, in one
/// cycle over the whole training.
///
/// # Source
/// `torch.optim.lr_scheduler.OneCycleLR`. Differs: a phase of no length gives its last
/// rate, where the original divides by zero.
pub type OneCycleLR = Schedule<OneCycleLRRule>;

impl OneCycleLR {
    /// One largest rate for all groups of `optimizer`.
    ///
    /// # Errors
    /// [`Error::Argument`] if a share or factor is out of range, or the momentum is to be
    /// moved and the optimizer has none.
    pub fn new<O>(optimizer: &O, max_lr: f64, config: OneCycleLRConfig) -> Result<Self>
    where
        O: Optimizer + ?Sized,
    {
        let groups = optimizer.learning_rates().len();
        Self::per_group(optimizer, vec![max_lr; groups], config)
    }

    /// A largest rate for each group of `optimizer`.
    ///
    /// # Errors
    /// As [`new`](Self::new), and if there are not as many rates as groups.
    pub fn per_group<O>(optimizer: &O, max_lrs: Vec<f64>, config: OneCycleLRConfig) -> Result<Self>
    where
        O: Optimizer + ?Sized,
    {
        let rates = optimizer.learning_rates();
        config.check()?;
        if max_lrs.len() != rates.len() {
            return Err(Error::Argument {
                operation: "OneCycleLR::per_group",
                expected: format!("one rate for each of the {} groups", rates.len()),
                found: max_lrs.len().to_string(),
            });
        }
        if config.momentum.is_some() && rates.momentum(0).is_none() {
            return Err(Error::Argument {
                operation: "OneCycleLRConfig.momentum",
                expected: "an optimizer with momentum or betas, or `None`".into(),
                found: format!("`{}`", optimizer.name()),
            });
        }
        for (group, max_lr) in max_lrs.iter().enumerate() {
            rates.set_initial(group, Some(max_lr / config.div_factor));
        }
        Ok(Self::with_rule(
            optimizer,
            OneCycleLRRule { config, max_lrs },
        ))
    }
}

impl OneCycleLRConfig {
    fn check(&self) -> Result<()> {
        let refuse = |operation, expected: &str, found: f64| {
            Err(Error::Argument {
                operation,
                expected: expected.into(),
                found: found.to_string(),
            })
        };
        if !(0.0..=1.0).contains(&self.pct_start) {
            let expected = "a share from 0 to 1";
            return refuse("OneCycleLRConfig.pct_start", expected, self.pct_start);
        }
        for (name, factor) in [
            ("OneCycleLRConfig.div_factor", self.div_factor),
            ("OneCycleLRConfig.final_div_factor", self.final_div_factor),
        ] {
            if !(factor.is_finite() && factor > 0.0) {
                return refuse(name, "a number above 0", factor);
            }
        }
        Ok(())
    }

    /// The last step of each phase.
    fn ends(&self) -> Vec<f64> {
        let total = self.total_steps.get() as f64;
        let rising = self.pct_start * total;
        let last = total - 1.0;
        match self.three_phase {
            true => vec![rising - 1.0, 2.0 * self.pct_start * total - 2.0, last],
            false => vec![rising - 1.0, last],
        }
    }

    /// The phase of a step, and which share of it has passed.
    fn phase(&self, step: u64) -> (usize, f64) {
        let step = step as f64;
        let ends = self.ends();
        let phase = ends[..ends.len() - 1]
            .iter()
            .position(|&end| step <= end)
            .unwrap_or(ends.len() - 1);
        let start = if phase == 0 { 0.0 } else { ends[phase - 1] };
        let length = ends[phase] - start;
        let share = if length == 0.0 {
            1.0
        } else {
            (step - start) / length
        };
        (phase, share)
    }
}

impl RateRule for OneCycleLRRule {
    const NAME: &'static str = "OneCycleLR";

    fn first(&self, at: Moment) -> f64 {
        self.rate(at)
    }

    fn rate(&self, at: Moment) -> f64 {
        let max = self.max_lrs.get(at.group).copied().unwrap_or(at.initial);
        let min = at.initial / self.config.final_div_factor;
        let (phase, share) = self.config.phase(at.step);
        let (start, end) = match (phase, self.config.three_phase) {
            (0, _) => (at.initial, max),
            (1, true) => (max, at.initial),
            (1, false) => (max, min),
            _ => (at.initial, min),
        };
        self.config.anneal_strategy.between(start, end, share)
    }

    fn momentum(&self, at: Moment) -> Option<f64> {
        let (least, largest) = self.config.momentum?;
        let (phase, share) = self.config.phase(at.step);
        let (start, end) = match phase {
            0 => (largest, least),
            1 => (least, largest),
            _ => (largest, largest),
        };
        Some(self.config.anneal_strategy.between(start, end, share))
    }

    fn total_steps(&self) -> Option<u64> {
        Some(self.config.total_steps.get())
    }

    fn allow(&self, step: u64) -> Result<()> {
        let total = self.config.total_steps;
        if step <= total.get() {
            return Ok(());
        }
        Err(Error::Argument {
            operation: "OneCycleLR",
            expected: format!("at most {total} steps; count `total_steps` over the whole training"),
            found: format!("step {step}"),
        })
    }
}
