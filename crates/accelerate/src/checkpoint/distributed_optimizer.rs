//! The state of an optimizer in a distributed checkpoint, by the names of parameters.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use accelerate_formats::distributed::{DistributedCheckpoint, PathPart};
use accelerate_formats::{Dict, Value};
use accelerate_torch::storage;
use tch::Tensor;

use super::distributed::{Part, Plain, Shards, part_of, read_new, refuse, save};
use super::torch_state::{self, TorchState};
use crate::Result;
use crate::nn::all_parameters;
use crate::optim::{Optimizer, StateDict, StateValue};
use crate::registry::ModelHandle;
use crate::state::PartialState;

/// What everything of an optimizer is under.
const ROOT: &str = "optimizer";
const STATE: &str = "state";
const GROUPS: &str = "param_groups";
const PARAMETERS: &str = "params";
/// What counts steps and belongs to no number of the parameter.
const STEP: &str = "step";
const STEPS: &str = "step_count";

/// The parameters of an optimizer with their names and what this rank keeps of each.
struct Known {
    /// In the optimizer's order.
    parameters: Vec<(String, Tensor)>,
    shards: Shards,
    has_first_copy: bool,
}

impl Known {
    fn of(optimizer: &dyn Optimizer, models: &[Rc<ModelHandle>]) -> Self {
        let mut names = HashMap::new();
        let (mut shards, mut has_first_copy) = (Shards::new(), true);
        for model in models {
            for (name, parameter) in all_parameters(&**model) {
                names.entry(parameter.identity()).or_insert(name);
            }
            if let Some(sharded) = model.gradients().sharded() {
                shards.extend(sharded.kept());
                has_first_copy &= sharded.has_first_copy();
            }
        }
        let all = optimizer.groups().iter().enumerate();
        let parameters = all.map(|(number, parameter)| {
            let name = names.get(&storage::identity(parameter));
            // A parameter of no model has its number.
            let name = name.cloned().unwrap_or_else(|| number.to_string());
            (name, parameter.shallow_clone())
        });
        Self {
            parameters: parameters.collect(),
            shards,
            has_first_copy,
        }
    }

    fn is_in_shards(&self, parameter: &Tensor) -> bool {
        self.shards.contains_key(&storage::identity(parameter))
    }
}

/// Writes the state of an optimizer into a folder, each rank what it keeps.
///
/// # Collective
/// Every rank calls this.
pub(super) fn save_optimizer(
    folder: &Path,
    optimizer: &dyn Optimizer,
    models: &[Rc<ModelHandle>],
    state: &PartialState,
) -> Result<()> {
    let known = Known::of(optimizer, models);
    let own = optimizer.state_dict()?;
    let mut parts = Vec::new();
    for (number, (name, parameter)) in known.parameters.iter().enumerate() {
        for (kind, tensor) in tensors_of(&own, number) {
            let path = [ROOT, STATE, name.as_str(), kind]
                .map(str::to_owned)
                .to_vec();
            let is_shard = kind != STEP && known.is_in_shards(parameter);
            let writes = match is_shard {
                true => known.has_first_copy,
                false => state.is_main_process(),
            };
            if writes {
                parts.push(match is_shard {
                    true => part_of(path, parameter, tensor, &known.shards),
                    false => Part::whole(path, tensor),
                });
            }
        }
    }
    let values = match state.is_main_process() {
        true => settings(&own, &known)?,
        false => Vec::new(),
    };
    save(folder, &parts, &values, state)
}

fn tensors_of(state: &StateDict, number: usize) -> impl Iterator<Item = (&str, &Tensor)> {
    let prefix = format!("{STATE}.{number}.");
    state.iter().filter_map(move |(name, value)| match value {
        StateValue::Tensor(tensor) => Some((name.strip_prefix(&prefix)?, tensor)),
        _ => None,
    })
}

/// The settings of each group, with the names of its parameters.
fn settings(state: &StateDict, known: &Known) -> Result<Vec<Plain>> {
    let plain: StateDict = state
        .iter()
        .filter(|(_, value)| !matches!(value, StateValue::Tensor(_)))
        .map(|(name, value)| (name.to_owned(), value.handle()))
        .collect();
    let Value::Dict(whole) = TorchState::default().optimizer(&plain)? else {
        return Ok(Vec::new());
    };
    let key = |key: &str| PathPart::Key(key.to_owned());
    let mut found = Vec::new();
    for (name, value) in whole {
        match (name.as_str(), value) {
            (Some(STATE), _) | (None, _) => {}
            (Some(GROUPS), Value::List(groups)) => {
                for (number, group) in groups.into_iter().enumerate() {
                    let Value::Dict(group) = group else { continue };
                    for (setting, value) in group {
                        let setting = setting.as_str().unwrap_or_default();
                        let value = match setting {
                            PARAMETERS => names_of(&value, known),
                            _ => value,
                        };
                        let place = PathPart::Index(number);
                        found.push((vec![key(ROOT), key(GROUPS), place, key(setting)], value));
                    }
                }
            }
            (Some(name), value) => found.push((vec![key(ROOT), key(name)], value)),
        }
    }
    Ok(found)
}

/// The names of parameters that are given by their numbers.
fn names_of(numbers: &Value, known: &Known) -> Value {
    let numbers = numbers.as_slice().unwrap_or(&[]).iter();
    let names = numbers.filter_map(|number| {
        let (name, _) = known.parameters.get(number.as_usize()?)?;
        Some(Value::from(name.as_str()))
    });
    names.collect::<Vec<_>>().into()
}

/// Goes on from the state in a folder: each rank reads what it keeps.
///
/// # Errors
/// [`Error::StateMismatch`](crate::Error::StateMismatch) with everything that does not fit.
pub(super) fn load_optimizer(
    folder: &Path,
    optimizer: &mut dyn Optimizer,
    models: &[Rc<ModelHandle>],
) -> Result<()> {
    let checkpoint = DistributedCheckpoint::open(folder)?;
    let known = Known::of(optimizer, models);
    let groups = optimizer.groups().len();
    let settings = read_settings(&checkpoint, &known, groups)?;
    let mut state = torch_state::optimizer(settings, optimizer.name())?;
    let mut steps = 0.0_f64;
    let kinds = kinds_by_name(&checkpoint);
    for (number, (name, parameter)) in known.parameters.iter().enumerate() {
        for &kind in kinds.get(name.as_str()).into_iter().flatten() {
            let kept = match kind {
                STEP => None,
                _ => known.shards.get(&storage::identity(parameter)),
            };
            let path = [ROOT, STATE, name.as_str(), kind]
                .map(str::to_owned)
                .to_vec();
            let value = read_new(&checkpoint, path, kept)?;
            if kind == STEP {
                steps = steps.max(value.f_double_value(&[])?);
            }
            let name = format!("{STATE}.{number}.{kind}");
            state.push(name, StateValue::Tensor(value));
        }
    }
    if !checkpoint
        .value_names()
        .any(|name| name == format!("{ROOT}.{STEPS}"))
    {
        // PyTorch counts the steps of each parameter only; the last value counts.
        state.push(STEPS, StateValue::Int(steps as i64));
    }
    optimizer.load_state_dict(&state)
}

/// What there is of each parameter, by the parameter's name.
fn kinds_by_name(checkpoint: &DistributedCheckpoint) -> HashMap<&str, Vec<&str>> {
    let prefix = format!("{ROOT}.{STATE}.");
    let mut found = HashMap::<_, Vec<_>>::new();
    for tensor in checkpoint.tensors() {
        let own = tensor.name().strip_prefix(&prefix);
        // The names of parameters have dots too; kinds have none.
        if let Some((name, kind)) = own.and_then(|own| own.rsplit_once('.')) {
            found.entry(name).or_default().push(kind);
        }
    }
    found
}

/// The settings of all groups in PyTorch's form.
fn read_settings(checkpoint: &DistributedCheckpoint, known: &Known, count: usize) -> Result<Value> {
    let mut groups: Vec<Dict> = Vec::new();
    let mut whole = Dict::new();
    let (mut problems, mut first) = (Vec::new(), 0);
    let names: Vec<String> = checkpoint.value_names().map(str::to_owned).collect();
    for name in names {
        let path = checkpoint.path_of(&name).unwrap_or(&[]).to_vec();
        let value = checkpoint.value(&name)?;
        match path.as_slice() {
            [
                _,
                PathPart::Key(list),
                PathPart::Index(group),
                PathPart::Key(setting),
            ] if list == GROUPS && *group < count => {
                if groups.len() <= *group {
                    groups.resize_with(group + 1, Dict::new);
                }
                if let Some(group) = groups.get_mut(*group) {
                    group.push(setting.as_str(), value);
                }
            }
            [_, PathPart::Key(key)] => whole.push(key.as_str(), value),
            _ => problems.push(format!("`{name}` is unknown")),
        }
    }
    for (number, group) in groups.iter().enumerate() {
        let saved = group
            .get(PARAMETERS)
            .and_then(Value::as_slice)
            .unwrap_or(&[]);
        for name in saved {
            let own = known.parameters.get(first).map(|(name, _)| name.as_str());
            if name.as_str() != own {
                problems.push(format!(
                    "parameter {first}, of group {number}: expected {}, found {}",
                    own.unwrap_or("none"),
                    name.as_str().unwrap_or("no name")
                ));
            }
            first += 1;
        }
    }
    refuse("optimizer", problems)?;
    let groups: Vec<Value> = groups.into_iter().map(Value::from).collect();
    whole.push(GROUPS, groups);
    Ok(whole.into())
}
