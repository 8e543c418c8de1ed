use tch::Tensor;

use super::averaged::{Averaged, Direction, schedule_free_optimizer};
use super::progress::Weighing;
use crate::Result;
use crate::optim::engine::{Engine, Field};
use crate::optim::group::{IntoParamGroups, non_negative};
use crate::optim::moments::Lists;

/// Settings of [`SgdScheduleFree`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdScheduleFreeConfig {
    /// The learning rate of groups that have none of their own.
    pub lr: f64,
    /// How close to the average gradients are taken: above 0 and below 1.
    pub momentum: f64,
    /// The weight decay of groups that have none of their own; it is added to the gradient.
    pub weight_decay: f64,
    /// In how many steps the rate rises from 0 to the learning rate.
    pub warmup_steps: u64,
    /// Step number `k` counts `k` to this power in the average.
    pub r: f64,
    /// A step counts its rate, the largest so far, to this power in the average.
    pub weight_lr_power: f64,
}

impl Default for SgdScheduleFreeConfig {
    fn default() -> Self {
        Self {
            lr: 1.0,
            momentum: 0.9,
            weight_decay: 0.0,
            warmup_steps: 0,
            r: 0.0,
            weight_lr_power: 2.0,
        }
    }
}

impl Direction for SgdScheduleFreeConfig {
    const NAME: &'static str = "SgdScheduleFree";
    const NAMES: &'static [&'static str] = &["z"];

    fn check(&self) -> Result<()> {
        non_negative("SgdScheduleFreeConfig.lr", self.lr)?;
        non_negative("SgdScheduleFreeConfig.weight_decay", self.weight_decay)?;
        Ok(())
    }

    fn defaults(&self) -> (f64, f64) {
        (self.lr, self.weight_decay)
    }

    fn fields(&mut self) -> Vec<(&'static str, Field<'_>)> {
        vec![
            ("momentum", Field::Float(&mut self.momentum)),
            ("warmup_steps", Field::Count(&mut self.warmup_steps)),
            ("r", Field::Float(&mut self.r)),
            ("weight_lr_power", Field::Float(&mut self.weight_lr_power)),
        ]
    }

    fn weighing(&self) -> Weighing {
        Weighing {
            warmup_steps: self.warmup_steps,
            r: self.r,
            weight_lr_power: self.weight_lr_power,
        }
    }

    fn interpolation(&self) -> f64 {
        self.momentum
    }

    fn direction(&self, gradient: Tensor, _lists: &Lists, _step: u64) -> Result<Tensor> {
        Ok(gradient)
    }
}

/// Gradient descent that needs no schedule; see
/// [`AdamWScheduleFree`](super::AdamWScheduleFree) for its two modes.
///
/// # Source
/// `schedulefree.SGDScheduleFree`, equal to it within the rounding of a step. Differs: the
/// state also counts the steps of each parameter.
pub struct SgdScheduleFree {
    engine: Engine<Averaged<SgdScheduleFreeConfig>>,
}

impl SgdScheduleFree {
    /// An optimizer of `parameters`, in evaluation mode.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if a setting is out of range,
    /// there is no parameter, or one is in two groups or no leaf of the graph.
    pub fn new(parameters: impl IntoParamGroups, config: SgdScheduleFreeConfig) -> Result<Self> {
        let engine = Engine::new(parameters, Averaged::new(config))?;
        Ok(Self { engine })
    }
}

schedule_free_optimizer!(SgdScheduleFree);
