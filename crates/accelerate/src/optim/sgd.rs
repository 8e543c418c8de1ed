use std::fmt;

use accelerate_torch::autograd;
use accelerate_torch::fused::{self, GradScale, SgdStep};
use tch::Tensor;

use super::cohort::Cohorts;
use super::group::{IntoParamGroups, ParamGroups, non_negative};
use super::on_disk::StateFile;
use super::optimizer::Optimizer;
use super::state_dict::{StateDict, StateReader, StateValue};
use crate::offload::DiskFolder;
use crate::{Error, Result};

const NAME: &str = "Sgd";

/// Settings of [`Sgd`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdConfig {
    /// The learning rate of groups that have none of their own.
    pub lr: f64,
    /// How much of the moving direction is kept at each step.
    pub momentum: f64,
    /// How much of the new gradient is left out of the direction.
    pub dampening: f64,
    /// The weight decay of groups that have none of their own.
    pub weight_decay: f64,
    /// Looks ahead along the direction; needs momentum and no dampening.
    pub nesterov: bool,
    /// Goes up along the gradient instead of down.
    pub maximize: bool,
}

impl SgdConfig {
    /// Plain gradient descent with this learning rate.
    #[must_use]
    pub fn new(lr: f64) -> Self {
        Self {
            lr,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
        }
    }

    fn check(&self) -> Result<()> {
        non_negative("SgdConfig.lr", self.lr)?;
        non_negative("SgdConfig.momentum", self.momentum)?;
        non_negative("SgdConfig.weight_decay", self.weight_decay)?;
        if !self.dampening.is_finite() {
            return Err(Error::Argument {
                operation: "SgdConfig.dampening",
                expected: "a finite number".into(),
                found: self.dampening.to_string(),
            });
        }
        if self.nesterov && (self.momentum <= 0.0 || self.dampening != 0.0) {
            return Err(Error::Argument {
                operation: "SgdConfig.nesterov",
                expected: "momentum above 0 and dampening 0".into(),
                found: format!(
                    "momentum {} and dampening {}",
                    self.momentum, self.dampening
                ),
            });
        }
        Ok(())
    }
}

/// Stochastic gradient descent, with momentum if wanted, on libtorch's fused kernels.
///
/// # Source
/// `torch.optim.SGD(fused=True)`, equal to it bit for bit. Differs: a parameter
/// that gets its first gradient later than others starts its momentum then.
pub struct Sgd {
    config: SgdConfig,
    groups: ParamGroups,
    momenta: Vec<Vec<Option<Tensor>>>,
    cohorts: Vec<Cohorts<Momenta>>,
    /// Where momenta lie, if not in memory.
    on_disk: Option<StateFile>,
}

/// The momentum buffers of a cohort, as the kernel takes them.
struct Momenta {
    buffers: Vec<Tensor>,
    first_step: bool,
}

impl Sgd {
    /// An optimizer of `parameters`.
    ///
    /// # Errors
    /// [`Error::Argument`] if a setting is out of range, there is no parameter,
    /// or one is in two groups or no leaf of the graph.
    pub fn new(parameters: impl IntoParamGroups, config: SgdConfig) -> Result<Self> {
        config.check()?;
        let groups = ParamGroups::new(NAME, parameters, config.lr, config.weight_decay)?;
        groups.learning_rates().declare_momentum(config.momentum);
        let momenta = groups
            .groups()
            .iter()
            .map(|group| group.parameters.iter().map(|_| None).collect())
            .collect();
        let cohorts = groups.groups().iter().map(|_| Cohorts::new()).collect();
        Ok(Self {
            config,
            groups,
            momenta,
            cohorts,
            on_disk: None,
        })
    }

    /// How many tensors a parameter has.
    fn kinds(&self, momentum: f64) -> usize {
        let has_some = self.momenta.iter().flatten().any(Option::is_some);
        usize::from(momentum != 0.0 || has_some)
    }

    /// Where momenta are loaded to that lie on disk: a new file, unless nothing is in the one there is.
    fn file_for_loading(&self, momentum: f64) -> Result<Option<StateFile>> {
        let Some(file) = &self.on_disk else {
            return Ok(None);
        };
        let kinds = usize::from(momentum != 0.0);
        let is_unused = self.momenta.iter().flatten().all(Option::is_none);
        match is_unused && file.kinds() == kinds {
            true => Ok(None),
            false => file.another(&self.groups, kinds).map(Some),
        }
    }

    fn update(&mut self) -> Result<()> {
        let config = self.config;
        let rates = self.groups.learning_rates();
        for (number, group) in self.groups.groups().iter().enumerate() {
            let momentum = rates.momentum(number).unwrap_or(config.momentum);
            let momenta = &mut self.momenta[number];
            let step = SgdStep {
                lr: rates.get(number).unwrap_or(config.lr),
                momentum,
                dampening: config.dampening,
                weight_decay: group.weight_decay.get(),
                nesterov: config.nesterov,
                maximize: config.maximize,
                first_step: false,
            };
            if let Some(file) = &self.on_disk {
                update_on_disk(step, number, &group.parameters, momenta, file)?;
                continue;
            }
            let fresh: Vec<u64> = momenta.iter().map(|own| own.is_none().into()).collect();
            if momentum != 0.0 {
                // A schedule can switch momentum on later.
                self.cohorts[number].reset_if(|momenta| momenta.buffers.is_empty());
            }
            let cohorts = self.cohorts[number].refresh(
                &group.parameters,
                |index| fresh[index],
                |members| Momenta::new(&group.parameters, momenta, members, momentum),
            )?;
            for cohort in cohorts {
                let step = SgdStep {
                    first_step: cohort.lists.first_step,
                    ..step
                };
                let buffers = &cohort.lists.buffers;
                let unscaled = GradScale::default();
                fused::sgd(
                    &cohort.parameters,
                    &cohort.gradients,
                    buffers,
                    &step,
                    unscaled,
                )?;
                cohort.lists.first_step = false;
            }
            self.cohorts[number].release();
        }
        Ok(())
    }
}

/// Updates the parameters of a group a part at a time.
fn update_on_disk(
    step: SgdStep,
    group: usize,
    parameters: &[Tensor],
    momenta: &mut [Option<Tensor>],
    file: &StateFile,
) -> Result<()> {
    let has_momentum = step.momentum != 0.0;
    if has_momentum && file.kinds() == 0 {
        return Err(Error::Argument {
            operation: NAME,
            expected: "a momentum from the first step on, where state is on disk".to_owned(),
            found: format!("momentum {} later", step.momentum),
        });
    }
    let fresh: Vec<bool> = momenta.iter().map(Option::is_none).collect();
    for (index, parameter) in parameters.iter().enumerate() {
        if has_momentum && fresh[index] && autograd::grad(parameter)?.is_some() {
            momenta[index] = file.tensors(group, index, parameter)?.pop();
        }
    }
    file.update(
        group,
        parameters,
        |index| fresh[index].into(),
        |run| {
            let step = SgdStep {
                // The kernel fills what is new with the first gradient.
                first_step: has_momentum && run.members.first().is_some_and(|&one| fresh[one]),
                ..step
            };
            let buffers = match (has_momentum, run.tensors.first()) {
                (true, Some(buffers)) => buffers.as_slice(),
                _ => &[],
            };
            let unscaled = GradScale::default();
            let (parameters, gradients) = (&run.parameters, &run.gradients);
            Ok(fused::sgd(parameters, gradients, buffers, &step, unscaled)?)
        },
    )
}

impl Momenta {
    fn new(
        parameters: &[Tensor],
        momenta: &mut [Option<Tensor>],
        members: &[usize],
        momentum: f64,
    ) -> Result<Self> {
        let mut lists = Self {
            buffers: Vec::new(),
            first_step: false,
        };
        if momentum == 0.0 {
            return Ok(lists);
        }
        for &index in members {
            let buffer = match momenta[index].take() {
                Some(buffer) => buffer,
                None => {
                    // The kernel fills it with the first gradient. All members are new or none is.
                    lists.first_step = true;
                    parameters[index].f_zeros_like()?
                }
            };
            lists.buffers.push(buffer.shallow_clone());
            momenta[index] = Some(buffer);
        }
        Ok(lists)
    }
}

impl Optimizer for Sgd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn groups(&self) -> &ParamGroups {
        &self.groups
    }

    fn is_elementwise(&self) -> bool {
        true
    }

    fn step(&mut self) -> Result<()> {
        tch::no_grad(|| self.update())?;
        self.groups.count_step();
        Ok(())
    }

    fn state_dict(&self) -> Result<StateDict> {
        let mut state = self.groups.state_dict();
        let rates = self.groups.learning_rates();
        for number in 0..self.groups.len() {
            let prefix = format!("group.{number}.");
            let momentum = rates.momentum(number).unwrap_or(self.config.momentum);
            state.push(format!("{prefix}momentum"), StateValue::Float(momentum));
            state.push(
                format!("{prefix}dampening"),
                StateValue::Float(self.config.dampening),
            );
            state.push(
                format!("{prefix}nesterov"),
                StateValue::Bool(self.config.nesterov),
            );
            state.push(
                format!("{prefix}maximize"),
                StateValue::Bool(self.config.maximize),
            );
        }
        for (index, buffer) in self.momenta.iter().flatten().enumerate() {
            if let Some(buffer) = buffer {
                let value = StateValue::Tensor(buffer.shallow_clone());
                state.push(format!("state.{index}.momentum_buffer"), value);
            }
        }
        Ok(state)
    }

    fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut reader = StateReader::new(state);
        let mut config = self.config;
        let settings = self.groups.read(&mut reader);
        let mut groups_momentum = Vec::new();
        for number in 0..self.groups.len() {
            let prefix = format!("group.{number}.");
            let read = (
                reader.float(&format!("{prefix}momentum")),
                reader.float(&format!("{prefix}dampening")),
                reader.flag(&format!("{prefix}nesterov")),
                reader.flag(&format!("{prefix}maximize")),
            );
            if let (Some(momentum), Some(dampening), Some(nesterov), Some(maximize)) = read {
                config = SgdConfig {
                    momentum,
                    dampening,
                    nesterov,
                    maximize,
                    ..config
                };
            }
            groups_momentum.push(config.momentum);
        }
        let new_file = self.file_for_loading(config.momentum)?;
        let file = new_file.as_ref().or(self.on_disk.as_ref());
        let file = file.filter(|file| file.kinds() > 0);
        let mut momenta = Vec::new();
        let mut index = 0;
        for (number, group) in self.groups.groups().iter().enumerate() {
            let mut own = Vec::new();
            for (place, parameter) in group.parameters.iter().enumerate() {
                let name = format!("state.{index}.momentum_buffer");
                let read = match reader.has(&name) {
                    true => reader.tensor(&name, parameter)?,
                    false => None,
                };
                own.push(match (read, file) {
                    (Some(read), Some(file)) => file.keep(number, place, parameter, &[read])?.pop(),
                    (read, _) => read,
                });
                index += 1;
            }
            momenta.push(own);
        }
        reader.finish(NAME)?;
        config.check()?;
        self.groups.apply(settings);
        for (number, momentum) in groups_momentum.into_iter().enumerate() {
            self.groups.learning_rates().set_momentum(number, momentum);
        }
        self.config = config;
        self.momenta = momenta;
        self.on_disk = new_file.or(self.on_disk.take());
        self.cohorts.iter_mut().for_each(Cohorts::reset);
        Ok(())
    }

    fn keep_state_on_disk(&mut self, folder: &DiskFolder) -> Result<()> {
        let kinds = self.kinds(self.config.momentum);
        let file = StateFile::new(NAME, folder, &self.groups, kinds)?;
        for (number, group) in self.groups.groups().iter().enumerate() {
            for (index, parameter) in group.parameters.iter().enumerate() {
                let own = &mut self.momenta[number][index];
                if let Some(buffer) = own.take() {
                    *own = file.keep(number, index, parameter, &[buffer])?.pop();
                }
            }
        }
        self.on_disk = Some(file);
        self.cohorts.iter_mut().for_each(Cohorts::reset);
        Ok(())
    }
}

impl fmt::Debug for Sgd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sgd")
            .field("config", &self.config)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}
