use std::fmt;

use accelerate_torch::foreach;
use accelerate_torch::fused::{self, AdamState, AdamStep, GradScale};

use super::cohort::{Cohort, Cohorts};
use super::group::{IntoParamGroups, ParamGroups, fraction, non_negative};
use super::moments::{Lists, Moments, none_for_each};
use super::optimizer::Optimizer;
use super::state_dict::{StateDict, StateReader, StateValue};
use crate::Result;

const NAME: &str = "AdamW";

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

impl AdamWConfig {
    fn check(&self) -> Result<()> {
        non_negative("AdamWConfig.lr", self.lr)?;
        fraction("AdamWConfig.betas.0", self.betas.0)?;
        fraction("AdamWConfig.betas.1", self.betas.1)?;
        non_negative("AdamWConfig.eps", self.eps)?;
        non_negative("AdamWConfig.weight_decay", self.weight_decay)?;
        Ok(())
    }
}

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
    config: AdamWConfig,
    groups: ParamGroups,
    moments: Vec<Vec<Option<Moments>>>,
    cohorts: Vec<Cohorts<Lists>>,
}

impl AdamW {
    /// An optimizer of `parameters`.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if a setting is out of range,
    /// there is no parameter, or one is in two groups or no leaf of the graph.
    pub fn new(parameters: impl IntoParamGroups, config: AdamWConfig) -> Result<Self> {
        config.check()?;
        let groups = ParamGroups::new(NAME, parameters, config.lr, config.weight_decay)?;
        let moments = groups
            .groups()
            .iter()
            .map(|group| none_for_each(&group.parameters))
            .collect();
        let cohorts = groups.groups().iter().map(|_| Cohorts::new()).collect();
        Ok(Self {
            config,
            groups,
            moments,
            cohorts,
        })
    }

    fn update(&mut self) -> Result<()> {
        let config = self.config;
        for (number, group) in self.groups.groups().iter().enumerate() {
            let step = AdamStep {
                lr: self
                    .groups
                    .learning_rates()
                    .get(number)
                    .unwrap_or(config.lr),
                beta1: config.betas.0,
                beta2: config.betas.1,
                weight_decay: group.weight_decay,
                eps: config.eps,
                amsgrad: config.amsgrad,
                maximize: config.maximize,
            };
            let moments = &mut self.moments[number];
            let cohorts = self.cohorts[number].refresh(
                &group.parameters,
                |_| false,
                |members| Lists::new(&group.parameters, moments, members, config.amsgrad),
            )?;
            cohorts
                .iter()
                .try_for_each(|cohort| launch(cohort, &step))?;
            self.cohorts[number].release();
        }
        Ok(())
    }
}

fn launch(cohort: &Cohort<Lists>, step: &AdamStep) -> Result<()> {
    let lists = &cohort.lists;
    foreach::add_scalar_(&lists.steps, 1.0)?;
    let state = AdamState {
        exp_avgs: &lists.exp_avgs,
        exp_avg_sqs: &lists.exp_avg_sqs,
        max_exp_avg_sqs: &lists.max_exp_avg_sqs,
        steps: &lists.steps,
    };
    let unscaled = GradScale::default();
    Ok(fused::adamw(
        &cohort.parameters,
        &cohort.gradients,
        state,
        step,
        unscaled,
    )?)
}

impl Optimizer for AdamW {
    fn name(&self) -> &'static str {
        NAME
    }

    fn groups(&self) -> &ParamGroups {
        &self.groups
    }

    fn step(&mut self) -> Result<()> {
        tch::no_grad(|| self.update())?;
        self.groups.count_step();
        Ok(())
    }

    fn state_dict(&self) -> Result<StateDict> {
        let mut state = self.groups.state_dict();
        for number in 0..self.groups.len() {
            let prefix = format!("group.{number}.");
            state.push(
                format!("{prefix}beta1"),
                StateValue::Float(self.config.betas.0),
            );
            state.push(
                format!("{prefix}beta2"),
                StateValue::Float(self.config.betas.1),
            );
            state.push(format!("{prefix}eps"), StateValue::Float(self.config.eps));
            state.push(
                format!("{prefix}amsgrad"),
                StateValue::Bool(self.config.amsgrad),
            );
            state.push(
                format!("{prefix}maximize"),
                StateValue::Bool(self.config.maximize),
            );
        }
        for (index, moments) in self.moments.iter().flatten().enumerate() {
            for (kind, tensor) in moments.iter().flat_map(Moments::named) {
                let value = StateValue::Tensor(tensor.shallow_clone());
                state.push(format!("state.{index}.{kind}"), value);
            }
        }
        Ok(state)
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut reader = StateReader::new(state);
        let mut config = self.config;
        let settings = self.groups.read(&mut reader);
        for number in 0..self.groups.len() {
            let prefix = format!("group.{number}.");
            let read = (
                reader.float(&format!("{prefix}beta1")),
                reader.float(&format!("{prefix}beta2")),
                reader.float(&format!("{prefix}eps")),
                reader.flag(&format!("{prefix}amsgrad")),
                reader.flag(&format!("{prefix}maximize")),
            );
            if let (Some(beta1), Some(beta2), Some(eps), Some(amsgrad), Some(maximize)) = read {
                let betas = (beta1, beta2);
                config = AdamWConfig {
                    betas,
                    eps,
                    amsgrad,
                    maximize,
                    ..config
                };
            }
        }
        let mut moments = Vec::new();
        let mut index = 0;
        for group in self.groups.groups() {
            let mut own = none_for_each(&group.parameters);
            for (slot, parameter) in own.iter_mut().zip(&group.parameters) {
                let prefix = format!("state.{index}.");
                if reader.has_any(&prefix) {
                    *slot = Moments::read(&mut reader, &prefix, parameter, config.amsgrad)?;
                }
                index += 1;
            }
            moments.push(own);
        }
        reader.finish(NAME)?;
        config.check()?;
        self.groups.apply(settings);
        self.config = config;
        self.moments = moments;
        self.cohorts.iter_mut().for_each(Cohorts::reset);
        Ok(())
    }
}

impl fmt::Debug for AdamW {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdamW")
            .field("config", &self.config)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}
