use accelerate_torch::autograd;
use tch::Tensor;

use super::cohort::{Cohort, Cohorts};
use super::group::{IntoParamGroups, ParamGroups};
use super::moments::{Kinds, Lists, Moments, begin, none_for_each};
use super::on_disk::StateFile;
use super::optimizer::no_state_on_disk;
use super::state_dict::{StateDict, StateReader, StateValue};
use crate::Result;
use crate::offload::DiskFolder;

/// A setting that is saved with every group.
pub(super) enum Field<'a> {
    Float(&'a mut f64),
    Count(&'a mut u64),
    Bool(&'a mut bool),
}

/// The numbers of one group at one step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    /// The number of the group.
    pub(super) group: usize,
    pub(super) lr: f64,
    pub(super) weight_decay: f64,
    /// Momentum or first beta, 0 where there is none.
    pub(super) momentum: f64,
}

/// What makes one optimizer different from another; [`Engine`] does the rest.
pub(super) trait UpdateRule: Clone {
    /// The optimizer's name.
    const NAME: &'static str;
    /// Under which name the momentum is among the fields, if there is one.
    const MOMENTUM: Option<&'static str>;

    /// Whether every number of a parameter is updated by itself.
    const IS_ELEMENTWISE: bool = true;

    /// Refuses settings that cannot be.
    fn check(&self) -> Result<()>;

    /// Learning rate and weight decay of groups that have none of their own.
    fn defaults(&self) -> (f64, f64);

    /// The settings that all groups share, by their names in PyTorch.
    fn fields(&mut self) -> Vec<(&'static str, Field<'_>)>;

    /// The settings of one group, and where it stands, if the rule keeps that itself.
    fn fields_of(&mut self, _group: usize) -> Vec<(&'static str, Field<'_>)> {
        self.fields()
    }

    /// Gets ready for a step of one group with this learning rate, before anything changes.
    fn begin_step(&mut self, _group: usize, _lr: f64) -> Result<()> {
        Ok(())
    }

    /// The momentum that schedules can change, if there is one.
    fn momentum(&mut self) -> Option<f64> {
        let wanted = Self::MOMENTUM?;
        let mut fields = self.fields().into_iter();
        fields.find_map(|(name, field)| match field {
            Field::Float(number) if name == wanted => Some(*number),
            _ => None,
        })
    }

    /// What is kept for each parameter.
    fn kinds(&self) -> Kinds;

    /// Whether parameters can only be updated together after the same number of steps.
    fn needs_one_step_count(&self) -> bool {
        false
    }

    /// Updates the parameters of a cohort, whose steps are counted already.
    fn update(&self, cohort: &Cohort<Lists>, numbers: Numbers) -> Result<()>;
}

/// Steps, saves and loads by a rule.
pub(super) struct Engine<R> {
    pub(super) rule: R,
    pub(super) groups: ParamGroups,
    moments: Vec<Vec<Option<Moments>>>,
    cohorts: Vec<Cohorts<Lists>>,
    /// Where moments lie, if not in memory.
    on_disk: Option<StateFile>,
}

impl<R: UpdateRule> Engine<R> {
    pub(super) fn new(parameters: impl IntoParamGroups, mut rule: R) -> Result<Self> {
        rule.check()?;
        let (lr, weight_decay) = rule.defaults();
        let groups = ParamGroups::new(R::NAME, parameters, lr, weight_decay)?;
        if let Some(momentum) = rule.momentum() {
            groups.learning_rates().declare_momentum(momentum);
        }
        Ok(Self {
            rule,
            moments: groups
                .groups()
                .iter()
                .map(|group| none_for_each(&group.parameters))
                .collect(),
            cohorts: groups.groups().iter().map(|_| Cohorts::new()).collect(),
            groups,
            on_disk: None,
        })
    }

    /// Moves the state that there is into a file, which all later state goes to.
    pub(super) fn keep_state_on_disk(&mut self, folder: &DiskFolder) -> Result<()> {
        if !R::IS_ELEMENTWISE {
            return Err(no_state_on_disk(R::NAME));
        }
        let kinds = self.rule.kinds().names.len();
        let file = StateFile::new(R::NAME, folder, &self.groups, kinds)?;
        for (number, group) in self.groups.groups().iter().enumerate() {
            for (index, parameter) in group.parameters.iter().enumerate() {
                let own = &mut self.moments[number][index];
                if let Some(moments) = own.take() {
                    let moved = |values: &[Tensor]| file.keep(number, index, parameter, values);
                    *own = Some(moments.moved(moved)?);
                }
            }
        }
        self.on_disk = Some(file);
        self.cohorts.iter_mut().for_each(Cohorts::reset);
        Ok(())
    }

    pub(super) fn is_elementwise(&self) -> bool {
        R::IS_ELEMENTWISE
    }

    pub(super) fn step(&mut self) -> Result<()> {
        tch::no_grad(|| self.update())?;
        self.groups.count_step();
        Ok(())
    }

    fn update(&mut self) -> Result<()> {
        let rates = self.groups.learning_rates();
        let kinds = self.rule.kinds();
        for (number, group) in self.groups.groups().iter().enumerate() {
            let numbers = Numbers {
                group: number,
                lr: rates.get(number).unwrap_or_default(),
                weight_decay: group.weight_decay.get(),
                momentum: rates.momentum(number).unwrap_or_default(),
            };
            self.rule.begin_step(number, numbers.lr)?;
            let moments = &mut self.moments[number];
            if let Some(file) = &self.on_disk {
                update_on_disk(&self.rule, numbers, &group.parameters, moments, file)?;
                continue;
            }
            let steps = match self.rule.needs_one_step_count() {
                true => step_counts(moments)?,
                false => Vec::new(),
            };
            let cohorts = self.cohorts[number].refresh(
                &group.parameters,
                |index| steps.get(index).copied().unwrap_or_default(),
                |members| Lists::new(&group.parameters, moments, members, kinds),
            )?;
            for cohort in cohorts {
                cohort.lists.count_step()?;
                self.rule.update(cohort, numbers)?;
            }
            self.cohorts[number].release();
        }
        Ok(())
    }

    /// Every parameter that was updated already, with what is kept for it.
    pub(super) fn updated(&self) -> impl Iterator<Item = (&Tensor, &Moments)> {
        let own = self.moments.iter().flatten();
        let both = self.groups.iter().zip(own);
        both.filter_map(|(parameter, moments)| Some((parameter, moments.as_ref()?)))
    }

    pub(super) fn state_dict(&self) -> StateDict {
        let mut state = self.groups.state_dict();
        let rates = self.groups.learning_rates();
        let mut rule = self.rule.clone();
        for number in 0..self.groups.len() {
            for (name, field) in rule.fields_of(number) {
                let value = match field {
                    Field::Float(own) if R::MOMENTUM == Some(name) => {
                        StateValue::Float(rates.momentum(number).unwrap_or(*own))
                    }
                    Field::Float(number) => StateValue::Float(*number),
                    Field::Count(count) => {
                        StateValue::Int(i64::try_from(*count).unwrap_or(i64::MAX))
                    }
                    Field::Bool(flag) => StateValue::Bool(*flag),
                };
                state.push(format!("group.{number}.{name}"), value);
            }
        }
        let kinds = self.rule.kinds();
        for (index, moments) in self.moments.iter().flatten().enumerate() {
            for (kind, tensor) in moments.iter().flat_map(|own| own.named(kinds)) {
                let value = StateValue::Tensor(tensor.shallow_clone());
                state.push(format!("state.{index}.{kind}"), value);
            }
        }
        state
    }

    pub(super) fn load_state_dict(&mut self, state: &StateDict) -> Result<()> {
        let mut reader = StateReader::new(state);
        let settings = self.groups.read(&mut reader);
        let mut rule = self.rule.clone();
        let mut momenta = Vec::new();
        for number in 0..self.groups.len() {
            read_fields(&mut reader, &mut rule, number);
            momenta.push(rule.momentum());
        }
        let kinds = rule.kinds();
        let new_file = self.file_for_loading(kinds)?;
        let file = new_file.as_ref().or(self.on_disk.as_ref());
        let mut moments = Vec::new();
        let mut index = 0;
        for (number, group) in self.groups.groups().iter().enumerate() {
            let place = file.map(|file| (file, number));
            let own = read_moments(&mut reader, &group.parameters, index, kinds, place)?;
            index += own.len();
            moments.push(own);
        }
        reader.finish(R::NAME)?;
        rule.check()?;
        self.groups.apply(settings);
        for (number, momentum) in momenta.into_iter().enumerate() {
            if let Some(momentum) = momentum {
                self.groups.learning_rates().set_momentum(number, momentum);
            }
        }
        self.rule = rule;
        self.moments = moments;
        self.on_disk = new_file.or(self.on_disk.take());
        self.cohorts.iter_mut().for_each(Cohorts::reset);
        Ok(())
    }

    /// Where state is loaded to that lies on disk: a new file, unless nothing is in the one there is.
    fn file_for_loading(&self, kinds: Kinds) -> Result<Option<StateFile>> {
        let Some(file) = &self.on_disk else {
            return Ok(None);
        };
        let kinds = kinds.names.len();
        let is_unused = self.moments.iter().flatten().all(Option::is_none);
        match is_unused && file.kinds() == kinds {
            true => Ok(None),
            false => file.another(&self.groups, kinds).map(Some),
        }
    }
}

/// Updates the parameters of a group a part at a time.
fn update_on_disk<R: UpdateRule>(
    rule: &R,
    numbers: Numbers,
    parameters: &[Tensor],
    moments: &mut [Option<Moments>],
    file: &StateFile,
) -> Result<()> {
    let (group, kinds) = (numbers.group, rule.kinds());
    let is_new: Vec<bool> = moments.iter().map(Option::is_none).collect();
    for (index, parameter) in parameters.iter().enumerate() {
        if autograd::grad(parameter)?.is_none() {
            continue;
        }
        let own = match moments[index].take() {
            Some(own) => own,
            None => Moments::in_tensors(parameter, file.tensors(group, index, parameter)?)?,
        };
        // Once, however many parts the parameter has.
        own.count_step()?;
        moments[index] = Some(own);
    }
    file.update(
        group,
        parameters,
        |_| 0,
        |run| {
            for (place, &member) in run.members.iter().enumerate() {
                if is_new[member] {
                    let tensors = run.tensors.iter().map(|list| &list[place]);
                    begin(&run.parameters[place], tensors, kinds)?;
                }
            }
            let own = run.members.iter().filter_map(|&i| moments[i].as_ref());
            let lists = Lists::of_parts(own.map(Moments::step).collect(), run.tensors, run.flats);
            rule.update(&Cohort::new(run.parameters, run.gradients, lists), numbers)
        },
    )
}

fn step_counts(moments: &[Option<Moments>]) -> Result<Vec<u64>> {
    moments
        .iter()
        .map(|own| own.as_ref().map_or(Ok(0), Moments::steps))
        .collect()
}

fn read_fields<R: UpdateRule>(reader: &mut StateReader<'_>, rule: &mut R, group: usize) {
    for (name, field) in rule.fields_of(group) {
        let name = format!("group.{group}.{name}");
        match field {
            Field::Float(own) => *own = reader.float(&name).unwrap_or(*own),
            Field::Count(own) => *own = reader.count(&name).unwrap_or(*own),
            Field::Bool(own) => *own = reader.flag(&name).unwrap_or(*own),
        }
    }
}

fn read_moments(
    reader: &mut StateReader<'_>,
    parameters: &[Tensor],
    first: usize,
    kinds: Kinds,
    on_disk: Option<(&StateFile, usize)>,
) -> Result<Vec<Option<Moments>>> {
    let mut own = none_for_each(parameters);
    for (offset, parameter) in parameters.iter().enumerate() {
        let prefix = format!("state.{}.", first + offset);
        if reader.has_any(&prefix) {
            let read = Moments::read(reader, &prefix, parameter, kinds)?;
            own[offset] = match (read, on_disk) {
                (Some(read), Some((file, group))) => {
                    Some(read.moved(|values| file.keep(group, offset, parameter, values))?)
                }
                (read, _) => read,
            };
        }
    }
    Ok(own)
}

/// Makes an optimizer of a struct with an `engine`, with further methods if there are any.
macro_rules! optimizer_with_engine {
    ($optimizer:ident $(, { $($method:tt)* })?) => {
        impl crate::optim::Optimizer for $optimizer {
            fn name(&self) -> &'static str {
                stringify!($optimizer)
            }

            fn groups(&self) -> &crate::optim::ParamGroups {
                &self.engine.groups
            }

            fn is_elementwise(&self) -> bool {
                self.engine.is_elementwise()
            }

            fn step(&mut self) -> crate::Result<()> {
                self.engine.step()
            }

            fn state_dict(&self) -> crate::Result<crate::optim::StateDict> {
                Ok(self.engine.state_dict())
            }

            fn load_state_dict(&mut self, state: &crate::optim::StateDict) -> crate::Result<()> {
                self.engine.load_state_dict(state)
            }

            fn keep_state_on_disk(
                &mut self,
                folder: &crate::offload::DiskFolder,
            ) -> crate::Result<()> {
                self.engine.keep_state_on_disk(folder)
            }

            $($($method)*)?
        }

        impl std::fmt::Debug for $optimizer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($optimizer))
                    .field("config", &self.engine.rule)
                    .field("groups", &self.engine.groups)
                    .finish_non_exhaustive()
            }
        }
    };
}

pub(super) use optimizer_with_engine;
