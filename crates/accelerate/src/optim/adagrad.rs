use accelerate_torch::fused::{self, AdagradStep, GradScale};

use super::cohort::Cohort;
use super::engine::{Engine, Field, Numbers, UpdateRule, optimizer_with_engine};
use super::group::{IntoParamGroups, non_negative};
use super::moments::{Kinds, Lists};
use crate::Result;

/// Settings of [`Adagrad`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdagradConfig {
    /// The learning rate of groups that have none of their own.
    pub lr: f64,
    /// How fast the learning rate shrinks: step `t` uses `lr / (1 + (t - 1) * lr_decay)`.
    pub lr_decay: f64,
    /// The weight decay of groups that have none of their own; it is added to the gradient.
    pub weight_decay: f64,
    /// What the sums of squared gradients start at.
    pub initial_accumulator_value: f64,
    /// What is added to the denominator.
    pub eps: f64,
    /// Goes up along the gradient instead of down.
    pub maximize: bool,
}

impl Default for AdagradConfig {
    fn default() -> Self {
        Self {
            lr: 1e-2,
            lr_decay: 0.0,
            weight_decay: 0.0,
            initial_accumulator_value: 0.0,
            eps: 1e-10,
            maximize: false,
        }
    }
}

impl UpdateRule for AdagradConfig {
    const NAME: &'static str = "Adagrad";
    const MOMENTUM: Option<&'static str> = None;

    fn check(&self) -> Result<()> {
        non_negative("AdagradConfig.lr", self.lr)?;
        non_negative("AdagradConfig.lr_decay", self.lr_decay)?;
        non_negative("AdagradConfig.weight_decay", self.weight_decay)?;
        let start = self.initial_accumulator_value;
        non_negative("AdagradConfig.initial_accumulator_value", start)?;
        non_negative("AdagradConfig.eps", self.eps)?;
        Ok(())
    }

    fn defaults(&self) -> (f64, f64) {
        (self.lr, self.weight_decay)
    }

    fn fields(&mut self) -> Vec<(&'static str, Field<'_>)> {
        let start = &mut self.initial_accumulator_value;
        vec![
            ("lr_decay", Field::Float(&mut self.lr_decay)),
            ("initial_accumulator_value", Field::Float(start)),
            ("eps", Field::Float(&mut self.eps)),
            ("maximize", Field::Bool(&mut self.maximize)),
        ]
    }

    fn kinds(&self) -> Kinds {
        Kinds {
            names: &["sum"],
            copies: 0,
            fill: self.initial_accumulator_value,
            flat: false,
        }
    }

    fn update(&self, cohort: &Cohort<Lists>, numbers: Numbers) -> Result<()> {
        let step = AdagradStep {
            lr: numbers.lr,
            lr_decay: self.lr_decay,
            weight_decay: numbers.weight_decay,
            eps: self.eps,
            maximize: self.maximize,
        };
        Ok(fused::adagrad(
            &cohort.parameters,
            &cohort.gradients,
            cohort.lists.tensors(0),
            &cohort.lists.steps,
            &step,
            GradScale::default(),
        )?)
    }
}

/// Adagrad, on libtorch's fused kernels.
///
/// # Source
/// `torch.optim.Adagrad(fused=True)`, equal to it bit for bit. Differs: the sums
/// are made at a parameter's first step, not with the optimizer.
pub struct Adagrad {
    engine: Engine<AdagradConfig>,
}

impl Adagrad {
    /// An optimizer of `parameters`.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if a setting is out of range,
    /// there is no parameter, or one is in two groups or no leaf of the graph.
    pub fn new(parameters: impl IntoParamGroups, config: AdagradConfig) -> Result<Self> {
        let engine = Engine::new(parameters, config)?;
        Ok(Self { engine })
    }
}

optimizer_with_engine!(Adagrad);
