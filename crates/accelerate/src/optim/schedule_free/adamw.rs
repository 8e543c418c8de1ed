use tch::Tensor;

use super::averaged::{Averaged, Direction, schedule_free_optimizer};
use super::progress::Weighing;
use crate::Result;
use crate::optim::engine::{Engine, Field};
use crate::optim::group::{IntoParamGroups, fraction, non_negative};
use crate::optim::moments::Lists;

/// Settings of [`AdamWScheduleFree`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWScheduleFreeConfig {
    /// The learning rate of groups that have none of their own.
    pub lr: f64,
    /// How close to the average gradients are taken, above 0; and how much of the average of
    /// their squares is kept at each step.
    pub betas: (f64, f64),
    /// What is added to the denominator.
    pub eps: f64,
    /// The weight decay of groups that have none of their own.
    pub weight_decay: f64,
    /// In how many steps the rate rises from 0 to the learning rate.
    pub warmup_steps: u64,
    /// Step number `k` counts `k` to this power in the average.
    pub r: f64,
    /// A step counts its rate, the largest so far, to this power in the average.
    pub weight_lr_power: f64,
}

impl Default for AdamWScheduleFreeConfig {
    fn default() -> Self {
        Self {
            lr: 0.0025,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            warmup_steps: 0,
            r: 0.0,
            weight_lr_power: 2.0,
        }
    }
}

impl Direction for AdamWScheduleFreeConfig {
    const NAME: &'static str = "AdamWScheduleFree";
    const NAMES: &'static [&'static str] = &["z", "exp_avg_sq"];

    fn check(&self) -> Result<()> {
        non_negative("AdamWScheduleFreeConfig.lr", self.lr)?;
        fraction("AdamWScheduleFreeConfig.betas.1", self.betas.1)?;
        non_negative("AdamWScheduleFreeConfig.eps", self.eps)?;
        non_negative("AdamWScheduleFreeConfig.weight_decay", self.weight_decay)?;
        Ok(())
    }

    fn defaults(&self) -> (f64, f64) {
        (self.lr, self.weight_decay)
    }

    fn fields(&mut self) -> Vec<(&'static str, Field<'_>)> {
        vec![
            ("beta1", Field::Float(&mut self.betas.0)),
            ("beta2", Field::Float(&mut self.betas.1)),
            ("eps", Field::Float(&mut self.eps)),
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
        self.betas.0
    }

    fn direction(&self, gradient: Tensor, lists: &Lists, step: u64) -> Result<Tensor> {
        let beta2 = self.betas.1;
        let mut squares = lists.flat(1);
        let _ = squares.f_mul_scalar_(beta2)?;
        let _ = squares.f_addcmul_(&gradient.f_mul_scalar(1.0 - beta2)?, &gradient)?;
        let correction = 1.0 - beta2.powf(step as f64);
        let mut root = squares.f_div_scalar(correction)?.f_sqrt()?;
        Ok(gradient.f_div(&root.f_add_scalar_(self.eps)?)?)
    }
}

/// AdamW that needs no schedule, in a few kernel calls however many parameters there are.
///
/// Call [`train`](crate::optim::Optimizer::train) before training, and
/// [`eval`](crate::optim::Optimizer::eval) before the model is evaluated or saved: the
/// parameters then hold the average that the method is about. A step in evaluation mode, in
/// which the optimizer begins, is an error. A prepared optimizer passes both on, also while
/// gradients are accumulated, and on every rank. A saved state holds the mode, so save and
/// load it together with the model.
///
/// ```
/// use accelerate::optim::{AdamWScheduleFree, AdamWScheduleFreeConfig, Optimizer};
/// use tch::{Device, Kind, Tensor};
///
/// let weight = Tensor::ones([2, 3], (Kind::Float, Device::Cpu)).set_requires_grad(true);
/// let config = AdamWScheduleFreeConfig { lr: 0.01, warmup_steps: 10, ..Default::default() };
/// let mut optimizer = AdamWScheduleFree::new(vec![weight.shallow_clone()], config)?;
/// optimizer.train()?;
/// weight.f_square()?.f_sum(Kind::Float)?.f_backward()?;
/// optimizer.step()?;
/// optimizer.eval()?;
/// assert!(optimizer.step().is_err());
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Source
/// `schedulefree.AdamWScheduleFree`, equal to it within the rounding of a step. Differs: the
/// state also counts the steps of each parameter.
pub struct AdamWScheduleFree {
    engine: Engine<Averaged<AdamWScheduleFreeConfig>>,
}

impl AdamWScheduleFree {
    /// An optimizer of `parameters`, in evaluation mode.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if a setting is out of range,
    /// there is no parameter, or one is in two groups or no leaf of the graph.
    pub fn new(parameters: impl IntoParamGroups, config: AdamWScheduleFreeConfig) -> Result<Self> {
        let engine = Engine::new(parameters, Averaged::new(config))?;
        Ok(Self { engine })
    }
}

schedule_free_optimizer!(AdamWScheduleFree);
