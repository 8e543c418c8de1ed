use accelerate_torch::fused::{self, AdamState, AdamStep, GradScale};

use super::cohort::Cohort;
use super::engine::{Engine, Field, Numbers, UpdateRule, optimizer_with_engine};
use super::group::{IntoParamGroups, fraction, non_negative};
use super::moments::{Kinds, Lists};
use crate::Result;

/// Settings of [`Adam`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamConfig {
    /// The learning rate of groups that have none of their own.
    pub lr: f64,
    /// How much of the averages of gradients and of their squares is kept at each step.
    pub betas: (f64, f64),
    /// What is added to the denominator.
    pub eps: f64,
    /// The weight decay of groups that have none of their own; it is added to the gradient.
    pub weight_decay: f64,
    /// Divides by the largest average of squares so far instead of the current one.
    pub amsgrad: bool,
    /// Goes up along the gradient instead of down.
    pub maximize: bool,
}

impl Default for AdamConfig {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            amsgrad: false,
            maximize: false,
        }
    }
}

/// How Adam and its kin update; they differ in name and kernel.
macro_rules! adam_rule {
    ($config:ident, $name:literal, $kernel:path) => {
        impl UpdateRule for $config {
            const NAME: &'static str = $name;
            const MOMENTUM: Option<&'static str> = Some("beta1");

            fn check(&self) -> Result<()> {
                non_negative(concat!($name, "Config.lr"), self.lr)?;
                fraction(concat!($name, "Config.betas.0"), self.betas.0)?;
                fraction(concat!($name, "Config.betas.1"), self.betas.1)?;
                non_negative(concat!($name, "Config.eps"), self.eps)?;
                non_negative(concat!($name, "Config.weight_decay"), self.weight_decay)?;
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
                    ("amsgrad", Field::Bool(&mut self.amsgrad)),
                    ("maximize", Field::Bool(&mut self.maximize)),
                ]
            }

            fn kinds(&self) -> Kinds {
                adam_kinds(self.amsgrad)
            }

            fn update(&self, cohort: &Cohort<Lists>, numbers: Numbers) -> Result<()> {
                let step = AdamStep {
                    lr: numbers.lr,
                    beta1: numbers.momentum,
                    beta2: self.betas.1,
                    weight_decay: numbers.weight_decay,
                    eps: self.eps,
                    amsgrad: self.amsgrad,
                    maximize: self.maximize,
                };
                let unscaled = GradScale::default();
                Ok($kernel(
                    &cohort.parameters,
                    &cohort.gradients,
                    adam_state(&cohort.lists),
                    &step,
                    unscaled,
                )?)
            }
        }
    };
}
pub(super) use adam_rule;

adam_rule!(AdamConfig, "Adam", fused::adam);

/// What Adam and AdamW keep.
pub(super) fn adam_kinds(amsgrad: bool) -> Kinds {
    Kinds {
        names: match amsgrad {
            true => &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"],
            false => &["exp_avg", "exp_avg_sq"],
        },
        copies: 0,
        fill: 0.0,
        flat: false,
    }
}

/// What Adam and AdamW keep, as their kernel takes it.
pub(super) fn adam_state(lists: &Lists) -> AdamState<'_> {
    AdamState {
        exp_avgs: lists.tensors(0),
        exp_avg_sqs: lists.tensors(1),
        max_exp_avg_sqs: lists.tensors(2),
        steps: &lists.steps,
    }
}

/// Adam, on libtorch's fused kernels.
///
/// # Source
/// `torch.optim.Adam(fused=True)`, equal to it bit for bit.
pub struct Adam {
    engine: Engine<AdamConfig>,
}

impl Adam {
    /// An optimizer of `parameters`.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if a setting is out of range,
    /// there is no parameter, or one is in two groups or no leaf of the graph.
    pub fn new(parameters: impl IntoParamGroups, config: AdamConfig) -> Result<Self> {
        let engine = Engine::new(parameters, config)?;
        Ok(Self { engine })
    }
}

optimizer_with_engine!(Adam);
