use std::fmt;
use std::str::FromStr;

use super::plateau::{PlateauConfig, ReduceLROnPlateau};
use super::scheduler::Scheduler;
use super::warmup::{
    Shape, WsdConfig, constant_schedule, constant_schedule_with_warmup,
    cosine_schedule_with_warmup, cosine_with_hard_restarts_schedule_with_warmup,
    cosine_with_min_lr_schedule_with_warmup, cosine_with_min_lr_schedule_with_warmup_lr_rate,
    inverse_sqrt_schedule, linear_schedule_with_warmup, polynomial_decay_schedule_with_warmup,
    wsd_schedule,
};
use crate::optim::Optimizer;
use crate::{Error, Result};

/// The schedules that have a name in configurations.
///
/// # Source
/// `transformers.SchedulerType`. Differs: `greedy` is not offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SchedulerType {
    /// `linear`.
    Linear,
    /// `cosine`.
    Cosine,
    /// `cosine_with_restarts`.
    CosineWithRestarts,
    /// `polynomial`.
    Polynomial,
    /// `constant`.
    Constant,
    /// `constant_with_warmup`.
    ConstantWithWarmup,
    /// `inverse_sqrt`.
    InverseSqrt,
    /// `reduce_lr_on_plateau`.
    ReduceOnPlateau,
    /// `cosine_with_min_lr`.
    CosineWithMinLr,
    /// `cosine_warmup_with_min_lr`.
    CosineWarmupWithMinLr,
    /// `warmup_stable_decay`.
    WarmupStableDecay,
}

impl SchedulerType {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Linear,
        Self::Cosine,
        Self::CosineWithRestarts,
        Self::Polynomial,
        Self::Constant,
        Self::ConstantWithWarmup,
        Self::InverseSqrt,
        Self::ReduceOnPlateau,
        Self::CosineWithMinLr,
        Self::CosineWarmupWithMinLr,
        Self::WarmupStableDecay,
    ];

    /// The name in configurations.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Cosine => "cosine",
            Self::CosineWithRestarts => "cosine_with_restarts",
            Self::Polynomial => "polynomial",
            Self::Constant => "constant",
            Self::ConstantWithWarmup => "constant_with_warmup",
            Self::InverseSqrt => "inverse_sqrt",
            Self::ReduceOnPlateau => "reduce_lr_on_plateau",
            Self::CosineWithMinLr => "cosine_with_min_lr",
            Self::CosineWarmupWithMinLr => "cosine_warmup_with_min_lr",
            Self::WarmupStableDecay => "warmup_stable_decay",
        }
    }
}

impl fmt::Display for SchedulerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SchedulerType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == name);
        found.ok_or_else(|| Error::Argument {
            operation: "SchedulerType",
            expected: format!("one of {}", Self::ALL.map(Self::as_str).join(", ")),
            found: format!("`{name}`"),
        })
    }
}

/// What some schedules of [`get_scheduler`] need besides their length; each has the default
/// of transformers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SchedulerOptions {
    /// The number of cosine waves; `None` is half a wave, or one restart.
    pub num_cycles: Option<f64>,
    /// The last learning rate of `polynomial`.
    pub lr_end: f64,
    /// The power of `polynomial`.
    pub power: f64,
    /// The time scale of `inverse_sqrt`.
    pub timescale: Option<u64>,
    /// The least share of the learning rate, for those `with_min_lr`, which need it, and
    /// `warmup_stable_decay`.
    pub min_lr_rate: Option<f64>,
    /// The first share of the learning rate of `cosine_warmup_with_min_lr`.
    pub warmup_lr_rate: Option<f64>,
    /// The number of falling steps of `warmup_stable_decay`, which needs it.
    pub num_decay_steps: Option<u64>,
    /// The number of steps of `warmup_stable_decay` that stay; `None` takes all that are left.
    pub num_stable_steps: Option<u64>,
    /// The line up of `warmup_stable_decay`.
    pub warmup_type: Shape,
    /// The line down of `warmup_stable_decay`.
    pub decay_type: Shape,
    /// Everything about `reduce_lr_on_plateau`.
    pub plateau: PlateauConfig,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            num_cycles: None,
            lr_end: 1e-7,
            power: 1.0,
            timescale: None,
            min_lr_rate: None,
            warmup_lr_rate: None,
            num_decay_steps: None,
            num_stable_steps: None,
            warmup_type: Shape::Linear,
            decay_type: Shape::Cosine,
            plateau: PlateauConfig::default(),
        }
    }
}

/// Makes the schedule of this name for `optimizer`.
///
/// # Errors
/// [`Error::Argument`] if the schedule needs a number that is `None`.
///
/// # Source
/// `transformers.get_scheduler`.
pub fn get_scheduler<O>(
    name: SchedulerType,
    optimizer: &O,
    num_warmup_steps: Option<u64>,
    num_training_steps: Option<u64>,
    options: &SchedulerOptions,
) -> Result<Box<dyn Scheduler>>
where
    O: Optimizer + ?Sized,
{
    let need = Need(name);
    let warmup = || need.number("num_warmup_steps", num_warmup_steps);
    let total = || need.number("num_training_steps", num_training_steps);
    let least = || need.number("min_lr_rate", options.min_lr_rate);
    let waves = options.num_cycles.unwrap_or(0.5);
    Ok(match name {
        SchedulerType::Constant => Box::new(constant_schedule(optimizer)),
        SchedulerType::ReduceOnPlateau => {
            Box::new(ReduceLROnPlateau::new(optimizer, options.plateau)?)
        }
        SchedulerType::ConstantWithWarmup => {
            Box::new(constant_schedule_with_warmup(optimizer, warmup()?))
        }
        SchedulerType::InverseSqrt => Box::new(inverse_sqrt_schedule(
            optimizer,
            warmup()?,
            options.timescale,
        )),
        SchedulerType::Linear => {
            Box::new(linear_schedule_with_warmup(optimizer, warmup()?, total()?))
        }
        SchedulerType::Cosine => Box::new(cosine_schedule_with_warmup(
            optimizer,
            warmup()?,
            total()?,
            waves,
        )),
        SchedulerType::CosineWithRestarts => {
            let cycles = options.num_cycles.unwrap_or(1.0) as u64;
            Box::new(cosine_with_hard_restarts_schedule_with_warmup(
                optimizer,
                warmup()?,
                total()?,
                cycles,
            ))
        }
        SchedulerType::Polynomial => Box::new(polynomial_decay_schedule_with_warmup(
            optimizer,
            warmup()?,
            total()?,
            options.lr_end,
            options.power,
        )?),
        SchedulerType::CosineWithMinLr => Box::new(cosine_with_min_lr_schedule_with_warmup(
            optimizer,
            warmup()?,
            total()?,
            waves,
            least()?,
        )),
        SchedulerType::CosineWarmupWithMinLr => {
            Box::new(cosine_with_min_lr_schedule_with_warmup_lr_rate(
                optimizer,
                warmup()?,
                total()?,
                waves,
                least()?,
                options.warmup_lr_rate,
            ))
        }
        SchedulerType::WarmupStableDecay => {
            let (warmup, stages) = (warmup()?, *options);
            let decay = need.number("num_decay_steps", options.num_decay_steps)?;
            let stable = match options.num_stable_steps {
                Some(stable) => stable,
                None => total()?.saturating_sub(warmup + decay),
            };
            let config = WsdConfig {
                warmup_type: stages.warmup_type,
                decay_type: stages.decay_type,
                min_lr_ratio: stages.min_lr_rate.unwrap_or_default(),
                num_cycles: waves,
                ..WsdConfig::new(warmup, stable, decay)
            };
            Box::new(wsd_schedule(optimizer, config)?)
        }
    })
}

/// Who needs a number.
struct Need(SchedulerType);

impl Need {
    fn number<T>(&self, what: &str, number: Option<T>) -> Result<T> {
        number.ok_or_else(|| Error::Argument {
            operation: "get_scheduler",
            expected: format!("`{what}` for the schedule `{}`", self.0),
            found: "`None`".into(),
        })
    }
}
