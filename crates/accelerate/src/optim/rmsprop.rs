use tch::Tensor;

use super::cohort::Cohort;
use super::engine::{Engine, Field, Numbers, UpdateRule, optimizer_with_engine};
use super::flat;
use super::group::{IntoParamGroups, non_negative};
use super::moments::{Kinds, Lists};
use crate::Result;

/// Settings of [`RmsProp`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RmsPropConfig {
    /// The learning rate of groups that have none of their own.
    pub lr: f64,
    /// How much of the average of squared gradients is kept at each step.
    pub alpha: f64,
    /// What is added to the denominator.
    pub eps: f64,
    /// The weight decay of groups that have none of their own; it is added to the gradient.
    pub weight_decay: f64,
    /// How much of the moving direction is kept at each step.
    pub momentum: f64,
    /// Divides by an estimate of the gradient's deviation instead of its size.
    pub centered: bool,
    /// Goes up along the gradient instead of down.
    pub maximize: bool,
}

impl Default for RmsPropConfig {
    fn default() -> Self {
        Self {
            lr: 1e-2,
            alpha: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum: 0.0,
            centered: false,
            maximize: false,
        }
    }
}

impl RmsPropConfig {
    /// The gradient as one vector, with the weight decay in it.
    fn gradient(&self, cohort: &Cohort<Lists>, weight_decay: f64) -> Result<Tensor> {
        let mut gradient = flat::gradients(cohort)?;
        if self.maximize {
            gradient = gradient.f_neg()?;
        }
        if weight_decay != 0.0 {
            gradient = flat::add_scaled(&gradient, &flat::parameters(cohort)?, weight_decay)?;
        }
        Ok(gradient)
    }

    /// Moves the averages on and gives what the gradient is divided by.
    fn denominator(&self, lists: &Lists, gradient: &Tensor) -> Result<Tensor> {
        let share = 1.0 - self.alpha;
        let mut squares = lists.flat(0);
        let _ = squares.f_mul_scalar_(self.alpha)?;
        let _ = squares.f_addcmul_(&gradient.f_mul_scalar(share)?, gradient)?;
        let mut root = if self.centered {
            let mut mean = lists.flat(1);
            let _ = mean.f_lerp_(gradient, share)?;
            squares.f_addcmul(&mean.f_neg()?, &mean)?.f_sqrt()?
        } else {
            squares.f_sqrt()?
        };
        Ok(root.f_add_scalar_(self.eps)?)
    }
}

impl UpdateRule for RmsPropConfig {
    const NAME: &'static str = "RmsProp";
    const MOMENTUM: Option<&'static str> = Some("momentum");

    fn check(&self) -> Result<()> {
        non_negative("RmsPropConfig.lr", self.lr)?;
        non_negative("RmsPropConfig.alpha", self.alpha)?;
        non_negative("RmsPropConfig.eps", self.eps)?;
        non_negative("RmsPropConfig.weight_decay", self.weight_decay)?;
        non_negative("RmsPropConfig.momentum", self.momentum)?;
        Ok(())
    }

    fn defaults(&self) -> (f64, f64) {
        (self.lr, self.weight_decay)
    }

    fn fields(&mut self) -> Vec<(&'static str, Field<'_>)> {
        vec![
            ("alpha", Field::Float(&mut self.alpha)),
            ("eps", Field::Float(&mut self.eps)),
            ("momentum", Field::Float(&mut self.momentum)),
            ("centered", Field::Bool(&mut self.centered)),
            ("maximize", Field::Bool(&mut self.maximize)),
        ]
    }

    fn momentum(&mut self) -> Option<f64> {
        // Without momentum there is no buffer for it, so schedules cannot switch it on.
        (self.momentum > 0.0).then_some(self.momentum)
    }

    fn kinds(&self) -> Kinds {
        Kinds {
            names: match (self.centered, self.momentum > 0.0) {
                (false, false) => &["square_avg"],
                (false, true) => &["square_avg", "momentum_buffer"],
                (true, false) => &["square_avg", "grad_avg"],
                (true, true) => &["square_avg", "grad_avg", "momentum_buffer"],
            },
            copies: 0,
            fill: 0.0,
            flat: true,
        }
    }

    fn update(&self, cohort: &Cohort<Lists>, numbers: Numbers) -> Result<()> {
        let gradient = self.gradient(cohort, numbers.weight_decay)?;
        let denominator = self.denominator(&cohort.lists, &gradient)?;
        if self.momentum > 0.0 {
            let kind = if self.centered { 2 } else { 1 };
            let mut buffer = cohort.lists.flat(kind);
            let _ = buffer.f_mul_scalar_(numbers.momentum)?;
            let _ = buffer.f_addcdiv_(&gradient, &denominator)?;
            return flat::add_pieces(cohort, cohort.lists.tensors(kind), -numbers.lr);
        }
        let change = gradient.f_mul_scalar(-numbers.lr)?.f_div_(&denominator)?;
        flat::add_to_parameters(cohort, &change, 1.0)
    }
}

/// RMSprop, in a few kernel calls however many parameters there are.
///
/// # Source
/// `torch.optim.RMSprop(foreach=True)`, equal to it bit for bit in float32 and
/// float64. Differs: where `momentum` is 0, schedules cannot switch it on.
pub struct RmsProp {
    engine: Engine<RmsPropConfig>,
}

impl RmsProp {
    /// An optimizer of `parameters`.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if a setting is out of range,
    /// there is no parameter, or one is in two groups or no leaf of the graph.
    pub fn new(parameters: impl IntoParamGroups, config: RmsPropConfig) -> Result<Self> {
        let engine = Engine::new(parameters, config)?;
        Ok(Self { engine })
    }
}

optimizer_with_engine!(RmsProp);
