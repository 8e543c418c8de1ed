use std::fmt;

use accelerate_torch::autograd;
use tch::{Kind, Tensor};

use super::adafactor_state::FactoredMoments;
use super::flat::scalar;
use super::group::{IntoParamGroups, ParamGroups, fraction, non_negative};
use super::optimizer::Optimizer;
use super::state_dict::{StateDict, StateReader, StateValue};
use crate::{Error, Result};

const NAME: &str = "Adafactor";

/// Settings of [`Adafactor`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdafactorConfig {
    /// The learning rate of groups that have none of their own; `None` makes steps of relative
    /// size, `min(0.01, 1 / sqrt(step))`.
    pub lr: Option<f64>,
    /// What is added to squared gradients, and the least size of a parameter that scales its step.
    pub eps: (f64, f64),
    /// The largest root mean square of an update.
    pub clip_threshold: f64,
    /// The average of squares keeps `1 - step ^ decay_rate` at each step.
    pub decay_rate: f64,
    /// How much of the average of updates is kept at each step; `None` keeps no average.
    pub beta1: Option<f64>,
    /// The weight decay of groups that have none of their own.
    pub weight_decay: f64,
    /// Scales each parameter's steps with the root mean square of the parameter.
    pub scale_parameter: bool,
    /// Lets relative steps grow from a millionth: `min(1e-6 * step, 1 / sqrt(step))`.
    pub warmup_init: bool,
}

impl Default for AdafactorConfig {
    fn default() -> Self {
        Self {
            lr: None,
            eps: (1e-30, 1e-3),
            clip_threshold: 1.0,
            decay_rate: -0.8,
            beta1: None,
            weight_decay: 0.0,
            scale_parameter: true,
            warmup_init: false,
        }
    }
}

impl AdafactorConfig {
    fn check(&self) -> Result<()> {
        non_negative("AdafactorConfig.lr", self.lr.unwrap_or_default())?;
        non_negative("AdafactorConfig.eps.0", self.eps.0)?;
        non_negative("AdafactorConfig.eps.1", self.eps.1)?;
        non_negative("AdafactorConfig.weight_decay", self.weight_decay)?;
        fraction("AdafactorConfig.beta1", self.beta1.unwrap_or_default())?;
        let refuse = |operation, expected: &str, found: String| {
            Err(Error::Argument {
                operation,
                expected: expected.into(),
                found,
            })
        };
        if !(self.clip_threshold > 0.0 && self.clip_threshold.is_finite()) {
            let found = self.clip_threshold.to_string();
            return refuse("AdafactorConfig.clip_threshold", "a number above 0", found);
        }
        if !(self.decay_rate <= 0.0 && self.decay_rate.is_finite()) {
            let found = self.decay_rate.to_string();
            return refuse("AdafactorConfig.decay_rate", "a number of at most 0", found);
        }
        if let (true, Some(lr)) = (self.warmup_init, self.lr) {
            let found = format!("a learning rate of {lr}");
            return refuse("AdafactorConfig.warmup_init", "`lr: None`", found);
        }
        Ok(())
    }

    /// The learning rate at a step counted from 1, before the parameter's own scale.
    fn rate(&self, set: f64, step: f64) -> f64 {
        if self.lr.is_some() {
            return set;
        }
        let bound = if self.warmup_init { 1e-6 * step } else { 1e-2 };
        bound.min(1.0 / step.sqrt())
    }

    fn fields(&self) -> [(&'static str, StateValue); 9] {
        [
            ("eps1", StateValue::Float(self.eps.0)),
            ("eps2", StateValue::Float(self.eps.1)),
            ("clip_threshold", StateValue::Float(self.clip_threshold)),
            ("decay_rate", StateValue::Float(self.decay_rate)),
            ("use_beta1", StateValue::Bool(self.beta1.is_some())),
            ("beta1", StateValue::Float(self.beta1.unwrap_or_default())),
            ("scale_parameter", StateValue::Bool(self.scale_parameter)),
            ("relative_step", StateValue::Bool(self.lr.is_none())),
            ("warmup_init", StateValue::Bool(self.warmup_init)),
        ]
    }

    fn read(&mut self, reader: &mut StateReader<'_>, group: usize) {
        let name = |field: &str| format!("group.{group}.{field}");
        let mut float = |field: &str, own: f64| reader.float(&name(field)).unwrap_or(own);
        self.eps = (float("eps1", self.eps.0), float("eps2", self.eps.1));
        self.clip_threshold = float("clip_threshold", self.clip_threshold);
        self.decay_rate = float("decay_rate", self.decay_rate);
        let beta1 = float("beta1", self.beta1.unwrap_or_default());
        let mut flag = |field: &str| reader.flag(&name(field)).unwrap_or_default();
        self.beta1 = flag("use_beta1").then_some(beta1);
        self.scale_parameter = flag("scale_parameter");
        let relative = flag("relative_step");
        // The rate itself is the group's.
        self.lr = (!relative).then_some(self.lr.unwrap_or_default());
        self.warmup_init = flag("warmup_init");
    }
}

/// Adafactor: squares of gradients are averaged by rows and columns only, so its
/// state is small.
///
/// With `lr: None` the step's size is its own; the learning rates of the groups then
/// tell what it is, and what a schedule sets is not used.
///
/// # Source
/// `transformers.Adafactor`, with `lr: None` for `relative_step=True`. Differs: the
/// root mean square of the parameter is not kept, as each step computes it anew.
pub struct Adafactor {
    config: AdafactorConfig,
    groups: ParamGroups,
    moments: Vec<Vec<Option<FactoredMoments>>>,
}

impl Adafactor {
    /// An optimizer of `parameters`.
    ///
    /// # Errors
    /// [`Error::Argument`] if a setting is out of range, there is no parameter,
    /// or one is in two groups or no leaf of the graph.
    pub fn new(parameters: impl IntoParamGroups, config: AdafactorConfig) -> Result<Self> {
        config.check()?;
        let lr = config.lr.unwrap_or_default();
        let groups = ParamGroups::new(NAME, parameters, lr, config.weight_decay)?;
        let moments = groups
            .groups()
            .iter()
            .map(|group| group.parameters.iter().map(|_| None).collect())
            .collect();
        Ok(Self {
            config,
            groups,
            moments,
        })
    }

    fn update(&mut self) -> Result<()> {
        let rates = self.groups.learning_rates();
        for (number, group) in self.groups.groups().iter().enumerate() {
            let set = rates.get(number).unwrap_or_default();
            for (parameter, slot) in group.parameters.iter().zip(&mut self.moments[number]) {
                let Some(gradient) = autograd::grad(parameter)? else {
                    continue;
                };
                let gradient = whole(&gradient)?;
                let moments = match slot {
                    Some(moments) => moments,
                    slot => slot.insert(FactoredMoments::new(
                        &gradient,
                        self.config.beta1.is_some(),
                    )?),
                };
                moments.count_step();
                let rate = self.config.rate(set, moments.steps());
                rates.set(number, rate);
                let decay = group.weight_decay.get();
                update_one(&self.config, parameter, &gradient, moments, rate, decay)?;
            }
        }
        Ok(())
    }
}

fn update_one(
    config: &AdafactorConfig,
    parameter: &Tensor,
    gradient: &Tensor,
    moments: &mut FactoredMoments,
    rate: f64,
    weight_decay: f64,
) -> Result<()> {
    let mut target = whole(parameter)?;
    let rate = if config.scale_parameter {
        let size = root_mean_square(&target)?;
        size.f_clamp_min(config.eps.1)?.f_mul_scalar(rate)?
    } else {
        scalar(rate, &target)?
    };
    let kept = 1.0 - moments.steps().powf(config.decay_rate);
    let mut update = moments.normalised(gradient, kept, config.eps.0)?;
    let excess = root_mean_square(&update)?.f_div_scalar(config.clip_threshold)?;
    let _clipped = update.f_div_(&excess.f_clamp_min(1.0)?)?;
    let _scaled = update.f_mul_(&rate)?;
    let update = match config.beta1 {
        Some(beta1) => moments.averaged(update, beta1)?,
        None => update,
    };
    if weight_decay != 0.0 {
        let factor = rate.f_mul_scalar(-weight_decay)?;
        let before = target.shallow_clone();
        let _ = target.f_addcmul_(&before, &factor)?;
    }
    let _ = target.f_sub_(&update)?;
    if target.f_kind()? != parameter.f_kind()? {
        parameter.shallow_clone().f_copy_(&target)?;
    }
    Ok(())
}

/// The tensor itself, or a copy in float32 if its numbers are halves.
fn whole(tensor: &Tensor) -> Result<Tensor> {
    match tensor.f_kind()? {
        Kind::Half | Kind::BFloat16 => Ok(tensor.f_to_kind(Kind::Float)?),
        _ => Ok(tensor.shallow_clone()),
    }
}

fn root_mean_square(tensor: &Tensor) -> Result<Tensor> {
    let count = tensor.numel() as f64;
    Ok(tensor.f_norm()?.f_div_scalar(count.sqrt())?)
}

impl Optimizer for Adafactor {
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
            for (name, value) in self.config.fields() {
                state.push(format!("group.{number}.{name}"), value);
            }
        }
        for (index, moments) in self.moments.iter().flatten().enumerate() {
            if let Some(moments) = moments {
                moments.write(&mut state, &format!("state.{index}."));
            }
        }
        Ok(state)
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut reader = StateReader::new(state);
        let settings = self.groups.read(&mut reader);
        let mut config = self.config;
        for number in 0..self.groups.len() {
            config.read(&mut reader, number);
        }
        let mut moments = Vec::new();
        let mut index = 0;
        for group in self.groups.groups() {
            let mut own = Vec::new();
            for parameter in &group.parameters {
                let prefix = format!("state.{index}.");
                let averaged = config.beta1.is_some();
                own.push(match reader.has_any(&prefix) {
                    true => {
                        let like = whole(parameter)?;
                        FactoredMoments::read(&mut reader, &prefix, &like, averaged)?
                    }
                    false => None,
                });
                index += 1;
            }
            moments.push(own);
        }
        reader.finish(NAME)?;
        config.check()?;
        self.groups.apply(settings);
        self.config = config;
        self.moments = moments;
        Ok(())
    }
}

impl fmt::Debug for Adafactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adafactor")
            .field("config", &self.config)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}
