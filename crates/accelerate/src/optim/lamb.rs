use accelerate_torch::foreach;
use accelerate_torch::fused::{self, AdamState, AdamStep, GradScale};
use tch::Tensor;

use super::cohort::Cohort;
use super::engine::{Engine, Field, Numbers, UpdateRule, optimizer_with_engine};
use super::flat;
use super::group::{IntoParamGroups, fraction, non_negative};
use super::moments::{Kinds, Lists, split_like};
use crate::Result;

/// Settings of [`Lamb`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LambConfig {
    /// The learning rate of groups that have none of their own.
    pub lr: f64,
    /// How much of the averages of gradients and of their squares is kept at each step.
    pub betas: (f64, f64),
    /// What is added to the denominator.
    pub eps: f64,
    /// The weight decay of groups that have none of their own; it is added to the update
    /// before the trust ratio.
    pub weight_decay: f64,
    /// The least trust ratio; 0 for none.
    pub min_trust: f64,
    /// The largest trust ratio; infinity for none.
    pub max_trust: f64,
    /// Goes up along the gradient instead of down.
    pub maximize: bool,
}

impl Default for LambConfig {
    fn default() -> Self {
        Self {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-6,
            weight_decay: 1e-2,
            min_trust: 0.0,
            max_trust: f64::INFINITY,
            maximize: false,
        }
    }
}

impl LambConfig {
    /// The update before the trust ratio, pointing downhill, as one vector.
    fn direction(&self, cohort: &Cohort<Lists>, numbers: Numbers) -> Result<Tensor> {
        // Adam's kernel takes its step of size 1 from here.
        let direction = flat::parameters(cohort)?.f_mul_scalar(-numbers.weight_decay)?;
        let (first, second) = (cohort.lists.flat(0), cohort.lists.flat(1));
        let state = AdamState {
            exp_avgs: &[first],
            exp_avg_sqs: &[second],
            max_exp_avg_sqs: &[],
            steps: &cohort.lists.steps[..1],
        };
        let step = AdamStep {
            lr: 1.0,
            beta1: numbers.momentum,
            beta2: self.betas.1,
            weight_decay: 0.0,
            eps: self.eps,
            amsgrad: false,
            maximize: self.maximize,
        };
        let direction = [direction];
        let gradients = [flat::gradients(cohort)?];
        fused::adam(&direction, &gradients, state, &step, GradScale::default())?;
        let [direction] = direction;
        Ok(direction)
    }

    /// For each parameter, its norm over that of its update; 1 where one of them is 0.
    fn trust(&self, parameters: &[Tensor], updates: &[Tensor]) -> Result<Tensor> {
        let weights = Tensor::f_stack(&foreach::norm(parameters, 2.0)?, 0)?;
        let updates = Tensor::f_stack(&foreach::norm(updates, 2.0)?, 0)?;
        let known = weights.f_gt(0.0)?.f_logical_and(&updates.f_gt(0.0)?)?;
        let ratio = weights.f_div(&updates)?;
        let ratio = ratio.f_clamp(self.min_trust, self.max_trust)?;
        Ok(ratio.f_where_self(&known, &ratio.f_ones_like()?)?)
    }
}

impl UpdateRule for LambConfig {
    const NAME: &'static str = "Lamb";
    const MOMENTUM: Option<&'static str> = Some("beta1");
    // The trust ratio is that of a whole parameter.
    const IS_ELEMENTWISE: bool = false;

    fn check(&self) -> Result<()> {
        non_negative("LambConfig.lr", self.lr)?;
        fraction("LambConfig.betas.0", self.betas.0)?;
        fraction("LambConfig.betas.1", self.betas.1)?;
        non_negative("LambConfig.eps", self.eps)?;
        non_negative("LambConfig.weight_decay", self.weight_decay)?;
        non_negative("LambConfig.min_trust", self.min_trust)?;
        if self.max_trust.is_nan() || self.max_trust < self.min_trust {
            return Err(crate::Error::Argument {
                operation: "LambConfig.max_trust",
                expected: format!("a number of at least `min_trust` ({})", self.min_trust),
                found: self.max_trust.to_string(),
            });
        }
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
            ("min_trust", Field::Float(&mut self.min_trust)),
            ("max_trust", Field::Float(&mut self.max_trust)),
            ("maximize", Field::Bool(&mut self.maximize)),
        ]
    }

    fn kinds(&self) -> Kinds {
        Kinds {
            names: &["exp_avg", "exp_avg_sq"],
            copies: 0,
            fill: 0.0,
            flat: true,
        }
    }

    fn needs_one_step_count(&self) -> bool {
        true
    }

    fn update(&self, cohort: &Cohort<Lists>, numbers: Numbers) -> Result<()> {
        let mut direction = self.direction(cohort, numbers)?;
        let pieces = split_like(&direction, &cohort.parameters)?;
        let trust = self.trust(&cohort.parameters, &pieces)?;
        let sizes: Vec<i64> = pieces.iter().map(|piece| piece.numel() as i64).collect();
        let sizes = Tensor::f_from_slice(&sizes)?.f_to_device(direction.device())?;
        let whole = direction.numel() as i64;
        let trust = trust.f_repeat_interleave_self_tensor(&sizes, 0, whole)?;
        let _scaled = direction.f_mul_(&trust)?;
        flat::add_pieces(cohort, &pieces, numbers.lr)
    }
}

/// Lamb: Adam's update, scaled for each parameter by the ratio of its norm to the
/// update's; in a few kernel calls however many parameters there are.
///
/// # Source
/// Algorithm 2 of You and others, "Large Batch Optimization for Deep Learning"
/// (arXiv:1904.00962), with bias correction and `phi(z) = z` within the bounds of the
/// trust ratio. Differs from NVIDIA's `FusedLAMB`: gradients are not clipped here
/// (`Accelerator::clip_grad_norm` does it), and parameters without weight decay are
/// scaled too. `min_trust: 0.01, max_trust: 10.0` are the bounds of DeepSpeed's `Lamb`.
pub struct Lamb {
    engine: Engine<LambConfig>,
}

impl Lamb {
    /// An optimizer of `parameters`.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if a setting is out of range,
    /// there is no parameter, or one is in two groups or no leaf of the graph.
    pub fn new(parameters: impl IntoParamGroups, config: LambConfig) -> Result<Self> {
        let engine = Engine::new(parameters, config)?;
        Ok(Self { engine })
    }
}

optimizer_with_engine!(Lamb);
