use accelerate_torch::fused::{self, AdamStep, GradScale};

use super::adam::{adam_kinds, adam_rule, adam_state};
use super::cohort::Cohort;
use super::engine::{Engine, Field, Numbers, UpdateRule, optimizer_with_engine};
use super::group::{IntoParamGroups, fraction, non_negative};
use super::moments::{Kinds, Lists};
use crate::Result;

/// Settings of [`AdamW`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWConfig {
    /// The learning rate of groups that have none of their own.
    pub lr: f64,
    /// How much of the averages of gradients and of their squares is kept at each step.
    pub betas: (f64, f64),
    /// What is added to the denominator.
    pub eps: f64,
    /// The weight decay of groups that have none of their own.
    pub weight_decay: f64,
    /// Divides by the largest average of squares so far instead of the current one.
    pub amsgrad: bool,
    /// Goes up along the gradient instead of down.
    pub maximize: bool,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 1e-2,
            amsgrad: false,
            maximize: false,
        }
    }
}

adam_rule!(AdamWConfig, "AdamW", fused::adamw);

/// Adam with weight decay that is not part of the gradient, on libtorch's fused kernels.
///
/// ```
/// use accelerate::optim::{AdamW, AdamWConfig};
/// use tch::{Device, Kind, Tensor};
///
/// let weight = Tensor::ones([2, 3], (Kind::Float, Device::Cpu)).set_requires_grad(true);
/// let optimizer = AdamW::new(vec![weight], AdamWConfig { lr: 5e-5, ..Default::default() })?;
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Source
/// `torch.optim.AdamW(fused=True)`, equal to it bit for bit.
pub struct AdamW {
    engine: Engine<AdamWConfig>,
}

impl AdamW {
    /// An optimizer of `parameters`.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if a setting is out of range,
    /// there is no parameter, or one is in two groups or no leaf of the graph.
    pub fn new(parameters: impl IntoParamGroups, config: AdamWConfig) -> Result<Self> {
        let engine = Engine::new(parameters, config)?;
        Ok(Self { engine })
    }
}

optimizer_with_engine!(AdamW);
