use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use accelerate_torch::storage;
use tch::Tensor;

use super::rates::LearningRates;
use crate::{Error, Result};

/// Parameters with settings of their own.
#[derive(Debug, Default)]
pub struct ParamGroup {
    /// The parameters. One that stands here twice, as tied weights do, counts once.
    pub parameters: Vec<Tensor>,
    /// The learning rate, if not the optimizer's.
    pub lr: Option<f64>,
    /// The weight decay, if not the optimizer's.
    pub weight_decay: Option<f64>,
    /// The parameters' names for messages: one per parameter, or none at all.
    pub names: Vec<String>,
}

impl ParamGroup {
    /// A group with the optimizer's settings.
    #[must_use]
    pub fn new(parameters: Vec<Tensor>) -> Self {
        Self {
            parameters,
            ..Self::default()
        }
    }

    /// A group of named parameters with the optimizer's settings.
    #[must_use]
    pub fn named(parameters: impl IntoIterator<Item = (String, Tensor)>) -> Self {
        let (names, parameters) = parameters.into_iter().unzip();
        Self {
            parameters,
            names,
            ..Self::default()
        }
    }

    /// Sets the learning rate.
    #[must_use]
    pub fn lr(mut self, lr: f64) -> Self {
        self.lr = Some(lr);
        self
    }

    /// Sets the weight decay.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = Some(weight_decay);
        self
    }
}

/// What an optimizer can be made of: a list of parameters, or of groups.
pub trait IntoParamGroups {
    /// The groups.
    fn into_param_groups(self) -> Vec<ParamGroup>;
}

impl IntoParamGroups for Vec<Tensor> {
    fn into_param_groups(self) -> Vec<ParamGroup> {
        vec![ParamGroup::new(self)]
    }
}

impl IntoParamGroups for ParamGroup {
    fn into_param_groups(self) -> Vec<ParamGroup> {
        vec![self]
    }
}

impl IntoParamGroups for Vec<ParamGroup> {
    fn into_param_groups(self) -> Vec<ParamGroup> {
        self
    }
}

/// The checked parameter groups of an optimizer: a shared handle.
#[derive(Clone)]
pub struct ParamGroups {
    pub(super) groups: Rc<Vec<Group>>,
    rates: LearningRates,
    default_lr: f64,
}

pub(super) struct Group {
    pub(super) parameters: Vec<Tensor>,
    names: Vec<String>,
    pub(super) weight_decay: Cell<f64>,
}

impl ParamGroups {
    /// Checks `groups` and fills in `lr` and `weight_decay` where a group has none.
    pub(super) fn new(
        optimizer: &'static str,
        groups: impl IntoParamGroups,
        lr: f64,
        weight_decay: f64,
    ) -> Result<Self> {
        let mut seen = HashMap::new();
        let mut rates = Vec::new();
        let mut checked = Vec::new();
        for (number, group) in groups.into_param_groups().into_iter().enumerate() {
            rates.push(non_negative("ParamGroup.lr", group.lr.unwrap_or(lr))?);
            let weight_decay = group.weight_decay.unwrap_or(weight_decay);
            non_negative("ParamGroup.weight_decay", weight_decay)?;
            let (parameters, names) = distinct(optimizer, number, group, &mut seen)?;
            checked.push(Group {
                parameters,
                names,
                weight_decay: Cell::new(weight_decay),
            });
        }
        if checked.iter().all(|group| group.parameters.is_empty()) {
            return Err(Error::Argument {
                operation: optimizer,
                expected: "at least one parameter".into(),
                found: "none; is the model empty or frozen?".into(),
            });
        }
        Ok(Self {
            groups: Rc::new(checked),
            rates: LearningRates::new(rates),
            default_lr: lr,
        })
    }

    /// The number of groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there is no group, which no optimizer allows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// All parameters, group by group, each once.
    pub fn iter(&self) -> impl Iterator<Item = &Tensor> {
        self.groups.iter().flat_map(|group| &group.parameters)
    }

    /// The parameters of one group, `None` if there is no such group.
    #[must_use]
    pub fn parameters(&self, group: usize) -> Option<&[Tensor]> {
        self.groups
            .get(group)
            .map(|group| group.parameters.as_slice())
    }

    /// The names of one group's parameters; empty if they have none or there is no such group.
    #[must_use]
    pub fn names(&self, group: usize) -> &[String] {
        self.groups
            .get(group)
            .map_or(&[], |group| group.names.as_slice())
    }

    /// The weight decay of one group, `None` if there is no such group.
    #[must_use]
    pub fn weight_decay(&self, group: usize) -> Option<f64> {
        self.groups.get(group).map(|group| group.weight_decay.get())
    }

    /// The optimizer's own learning rate, for groups that were given none.
    #[must_use]
    pub fn default_lr(&self) -> f64 {
        self.default_lr
    }

    /// The learning rate of each group, shared with schedules.
    #[must_use]
    pub fn learning_rates(&self) -> &LearningRates {
        &self.rates
    }

    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Notes that a step was made.
    pub(super) fn count_step(&self) {
        self.rates.set_step_count(self.rates.step_count() + 1);
        self.rates.set_skipped(false);
    }
}

impl fmt::Debug for ParamGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<_> = self
            .groups
            .iter()
            .map(|group| group.parameters.len())
            .collect();
        f.debug_struct("ParamGroups")
            .field("parameters", &sizes)
            .field("rates", &self.rates)
            .finish_non_exhaustive()
    }
}

/// The parameters of a group without repetition, with their names.
fn distinct(
    optimizer: &'static str,
    number: usize,
    group: ParamGroup,
    seen: &mut HashMap<usize, usize>,
) -> Result<(Vec<Tensor>, Vec<String>)> {
    let wrong = |expected: String, found: String| Error::Argument {
        operation: optimizer,
        expected,
        found,
    };
    if !group.names.is_empty() && group.names.len() != group.parameters.len() {
        return Err(wrong(
            format!(
                "one name for each of the {} parameters",
                group.parameters.len()
            ),
            format!("{} names in group {number}", group.names.len()),
        ));
    }
    let (mut parameters, mut names) = (Vec::new(), Vec::new());
    for (index, parameter) in group.parameters.into_iter().enumerate() {
        let name = group.names.get(index);
        let label = || name.map_or(format!("parameter {index}"), |name| format!("`{name}`"));
        match seen.insert(storage::identity(&parameter), number) {
            Some(first) if first == number => continue,
            Some(first) => {
                return Err(wrong(
                    "each parameter in one group".into(),
                    format!("{} of group {number} in group {first} too", label()),
                ));
            }
            None => {}
        }
        if !parameter.f_is_leaf()? {
            return Err(wrong(
                "parameters that are leaves of the graph".into(),
                format!("{} of group {number}, which was computed", label()),
            ));
        }
        names.extend(name.cloned());
        parameters.push(parameter);
    }
    Ok((parameters, names))
}

/// `value`, if it is a finite number of at least 0.
pub(super) fn non_negative(field: &'static str, value: f64) -> Result<f64> {
    if value.is_finite() && value >= 0.0 {
        return Ok(value);
    }
    Err(Error::Argument {
        operation: field,
        expected: "a finite number of at least 0".into(),
        found: value.to_string(),
    })
}

/// `value`, if it is at least 0 and below 1.
pub(super) fn fraction(field: &'static str, value: f64) -> Result<f64> {
    if (0.0..1.0).contains(&value) {
        return Ok(value);
    }
    Err(Error::Argument {
        operation: field,
        expected: "a number of at least 0 and below 1".into(),
        found: value.to_string(),
    })
}
