//! States of optimizers, schedules and the like as files of `torch.save`.

use std::path::Path;
use std::sync::Arc;

use accelerate_formats::{Dict, Storage, StoredTensor, TorchFile, TorchWriter, Value};
use accelerate_torch::storage;
use tch::{Device, Tensor};

use super::dtype::{dtype_of, kind_of};
use super::weight_set::with_plain_bytes;
use crate::optim::{StateDict, StateValue};
use crate::{Error, Result};

/// Switches of PyTorch's optimizers that only say how it computes.
const WAYS_TO_COMPUTE: [&str; 5] = [
    "foreach",
    "capturable",
    "differentiable",
    "fused",
    "decoupled_weight_decay",
];
/// The tuple that PyTorch keeps two settings in.
const BETAS: (&str, [&str; 2]) = ("betas", ["beta1", "beta2"]);

/// A value whose tensors lie in libtorch, and are written when their turn comes.
#[derive(Debug, Default)]
pub(crate) struct TorchState {
    /// In the order of first mention, which is that of their storages.
    tensors: Vec<Tensor>,
}

impl TorchState {
    /// The description of `tensor`, whose bytes follow when the file is written.
    pub(crate) fn tensor(&mut self, tensor: &Tensor) -> Result<Value> {
        let kind = tensor.f_kind()?;
        let unknown = || Error::Argument {
            operation: "save_state",
            expected: "data types that files of `torch.save` can hold".to_owned(),
            found: format!("`{kind:?}`"),
        };
        let dtype = dtype_of(kind).ok_or_else(unknown)?;
        let shape: Vec<usize> = tensor
            .size()
            .into_iter()
            .map(|length| usize::try_from(length).unwrap_or(0))
            .collect();
        let bytes = tensor.numel() * kind.elt_size_in_bytes();
        let stored = StoredTensor::contiguous(dtype, shape, Arc::new(Storage::pending(bytes)));
        self.tensors.push(tensor.shallow_clone());
        Ok(stored.map_err(|_| unknown())?.into())
    }

    fn value(&mut self, value: &StateValue) -> Result<Value> {
        Ok(match value {
            StateValue::Tensor(tensor) => self.tensor(tensor)?,
            StateValue::Float(number) => (*number).into(),
            StateValue::Int(count) => (*count).into(),
            StateValue::Bool(flag) => (*flag).into(),
        })
    }

    /// A plain dict of the values.
    pub(crate) fn flat(&mut self, state: &StateDict) -> Result<Value> {
        let mut dict = Dict::new();
        for (name, value) in state.iter() {
            dict.push(name, self.value(value)?);
        }
        Ok(dict.into())
    }

    /// An optimizer's state in PyTorch's form: `state` by parameter, and `param_groups`.
    pub(crate) fn optimizer(&mut self, state: &StateDict) -> Result<Value> {
        let mut by_parameter = Numbered::default();
        let mut groups = Numbered::default();
        let mut others = Dict::new();
        for (name, value) in state.iter() {
            match numbered(name) {
                Some(("state", number, kind)) => {
                    by_parameter.push(number, kind, self.value(value)?)
                }
                Some(("group", number, setting)) => {
                    groups.push(number, setting, self.value(value)?)
                }
                _ => others.push(name, self.value(value)?),
            }
        }
        let mut first = 0;
        let groups = groups.0.into_values().map(|settings| {
            let (group, end) = group_in_torch(settings, first);
            first = end;
            Value::from(group)
        });
        let groups: Vec<Value> = groups.collect();
        let by_parameter: Dict = by_parameter
            .0
            .into_iter()
            .map(|(number, state)| (Value::Int(number.into()), state.into()))
            .collect();
        let mut whole = Dict::new()
            .with("state", by_parameter)
            .with("param_groups", groups);
        for (name, value) in others {
            whole.push(name, value);
        }
        Ok(whole.into())
    }

    /// The tensors, to be replaced by others of the same shapes and kinds.
    pub(crate) fn tensors_mut(&mut self) -> &mut [Tensor] {
        &mut self.tensors
    }

    /// Writes a value whose tensors were described here, down to the disk.
    ///
    /// # Errors
    /// [`Error::Formats`] if the file cannot be written.
    pub(crate) fn write(&self, mut writer: TorchWriter) -> Result<()> {
        while let Some(pending) = writer.pending() {
            let Some(tensor) = self.tensors.get(pending.index) else {
                break;
            };
            with_plain_bytes(tensor, |bytes| writer.write(bytes))??;
        }
        Ok(writer.finish()?)
    }
}

/// Dicts by number, ascending.
#[derive(Default)]
struct Numbered(std::collections::BTreeMap<u32, Dict>);

impl Numbered {
    fn push(&mut self, number: u32, name: &str, value: Value) {
        self.0.entry(number).or_default().push(name, value);
    }
}

/// `state.3.exp_avg` as (`state`, 3, `exp_avg`).
fn numbered(name: &str) -> Option<(&str, u32, &str)> {
    let (what, rest) = name.split_once('.')?;
    let (number, rest) = rest.split_once('.')?;
    Some((what, number.parse().ok()?, rest))
}

/// A group's settings as PyTorch keeps them, with the numbers of its parameters from `first` on.
fn group_in_torch(settings: Dict, first: usize) -> (Dict, usize) {
    let count = settings.get("parameters").and_then(Value::as_usize);
    let end = first + count.unwrap_or(0);
    // One alone, as Adafactor has it, keeps its name.
    let both = match BETAS.1.map(|name| settings.get(name).cloned()) {
        [Some(first), Some(second)] => Some(vec![first, second]),
        _ => None,
    };
    let mut group = Dict::new();
    for (name, value) in settings {
        match name.as_str() {
            Some("parameters") => {}
            Some(name) if both.is_some() && BETAS.1.contains(&name) => {}
            _ => group.push(name, value),
        }
    }
    if let Some(both) = both {
        group.push(BETAS.0, Value::Tuple(both));
    }
    let parameters: Vec<Value> = (first..end)
        .map(|number| Value::Int(number as i128))
        .collect();
    group.push("params", parameters);
    (group, end)
}

/// A plain dict as the state that it was made of.
///
/// # Errors
/// [`Error::StateMismatch`] if it holds something else than numbers, switches and tensors.
pub(crate) fn flat(value: Value, target: &'static str) -> Result<StateDict> {
    let mut state = StateDict::new();
    add(&mut state, "", value, target)?;
    Ok(state)
}

/// An optimizer's state out of PyTorch's form, saved by this library or by PyTorch.
///
/// # Errors
/// [`Error::StateMismatch`] if it has another form.
pub(crate) fn optimizer(value: Value, target: &'static str) -> Result<StateDict> {
    let Value::Dict(whole) = value else {
        return Err(strange(target, "the state", &value));
    };
    let mut state = StateDict::new();
    let mut steps = 0.0_f64;
    let mut counted = false;
    for (name, value) in whole {
        match (name.as_str(), value) {
            (Some("state"), Value::Dict(parameters)) => {
                for (number, kinds) in parameters {
                    let number = number.as_int().unwrap_or(-1);
                    steps = steps.max(steps_of(&kinds)?);
                    add(&mut state, &format!("state.{number}."), kinds, target)?;
                }
            }
            (Some("param_groups"), Value::List(groups)) => {
                for (number, group) in groups.into_iter().enumerate() {
                    add_group(&mut state, number, group, target)?;
                }
            }
            (Some(name), value) => {
                counted |= name == "step_count";
                add_value(&mut state, name.to_owned(), value, target)?;
            }
            (None, value) => return Err(strange(target, "a key", &value)),
        }
    }
    if !counted {
        // PyTorch counts the steps of each parameter only.
        state.push("step_count", StateValue::Int(steps as i64));
    }
    Ok(state)
}

fn steps_of(kinds: &Value) -> Result<f64> {
    match kinds.get("step") {
        Some(Value::Tensor(step)) => Ok(tensor(step)?.f_double_value(&[])?),
        Some(other) => Ok(other.as_f64().unwrap_or(0.0)),
        None => Ok(0.0),
    }
}

fn add_group(
    state: &mut StateDict,
    number: usize,
    group: Value,
    target: &'static str,
) -> Result<()> {
    let Value::Dict(group) = group else {
        return Err(strange(target, &format!("group {number}"), &group));
    };
    for (name, value) in group {
        let name = name.as_str().unwrap_or_default();
        let full = |name: &str| format!("group.{number}.{name}");
        match (name, &value) {
            ("params", Value::List(parameters)) => {
                let count = StateValue::Int(parameters.len() as i64);
                state.push(full("parameters"), count);
            }
            (name, Value::Tuple(both)) if name == BETAS.0 && both.len() == 2 => {
                for (name, value) in BETAS.1.into_iter().zip(both) {
                    add_value(state, full(name), value.clone(), target)?;
                }
            }
            (name, _) if WAYS_TO_COMPUTE.contains(&name) => {}
            (name, _) => add_value(state, full(name), value, target)?,
        }
    }
    Ok(())
}

fn add(state: &mut StateDict, prefix: &str, value: Value, target: &'static str) -> Result<()> {
    let Value::Dict(dict) = value else {
        return Err(strange(target, "the state", &value));
    };
    for (name, value) in dict {
        let Some(name) = name.as_str() else {
            return Err(strange(target, "a key", &name));
        };
        add_value(state, format!("{prefix}{name}"), value, target)?;
    }
    Ok(())
}

fn add_value(
    state: &mut StateDict,
    name: String,
    value: Value,
    target: &'static str,
) -> Result<()> {
    let value = match value {
        Value::Tensor(stored) => StateValue::Tensor(tensor(&stored)?),
        Value::Float(number) => StateValue::Float(number),
        Value::Bool(flag) => StateValue::Bool(flag),
        Value::Int(count) => match i64::try_from(count) {
            Ok(count) => StateValue::Int(count),
            Err(_) => return Err(strange(target, &format!("`{name}`"), &Value::Int(count))),
        },
        other => return Err(strange(target, &format!("`{name}`"), &other)),
    };
    state.push(name, value);
    Ok(())
}

fn strange(target: &'static str, what: &str, found: &Value) -> Error {
    Error::StateMismatch {
        target,
        problems: vec![format!(
            "{what}: expected numbers, switches and tensors by name, found {}",
            found.kind()
        )],
    }
}

/// A tensor of a file, where it lies if its address allows it.
pub(crate) fn tensor(stored: &StoredTensor) -> Result<Tensor> {
    let kind = kind_of(stored.dtype()).ok_or_else(|| Error::Argument {
        operation: "load_state",
        expected: "data types that libtorch has".to_owned(),
        found: format!("`{}`", stored.dtype()),
    })?;
    let shape: Vec<i64> = stored
        .shape()
        .iter()
        .map(|&length| i64::try_from(length).unwrap_or(i64::MAX))
        .collect();
    if stored.byte_len() == 0 {
        return Ok(Tensor::f_zeros(&shape, (kind, Device::Cpu))?);
    }
    let bytes = stored.to_owner()?;
    if bytes.is_aligned_to(stored.dtype().alignment()) {
        return Ok(storage::from_bytes_owner(Arc::new(bytes), kind, &shape)?);
    }
    Ok(Tensor::f_from_data_size(&bytes, &shape, kind)?)
}

/// Reads the value of a file of `torch.save`.
pub(crate) fn read(path: &Path) -> Result<Value> {
    Ok(TorchFile::open(path)?.into_value())
}

/// Plain data that serde knows, as a value.
pub(crate) fn from_json(json: serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::None,
        Json::Bool(flag) => flag.into(),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(count), _) => count.into(),
            (None, Some(count)) => count.into(),
            _ => number.as_f64().unwrap_or(f64::NAN).into(),
        },
        Json::String(text) => text.into(),
        Json::Array(items) => items.into_iter().map(from_json).collect::<Vec<_>>().into(),
        Json::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (name.into(), from_json(value)))
            .collect::<Dict>()
            .into(),
    }
}

/// The way back from [`from_json`]; none for what is no plain data.
pub(crate) fn to_json(value: &Value) -> Option<serde_json::Value> {
    use serde_json::Value as Json;
    Some(match value {
        Value::None => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Int(count) => match (i64::try_from(*count), u64::try_from(*count)) {
            (Ok(count), _) => count.into(),
            (Err(_), Ok(count)) => count.into(),
            _ => return None,
        },
        Value::Float(number) => serde_json::Number::from_f64(*number)?.into(),
        Value::Str(text) => Json::String(text.clone()),
        Value::List(items) | Value::Tuple(items) => {
            Json::Array(items.iter().map(to_json).collect::<Option<_>>()?)
        }
        Value::Dict(dict) => Json::Object(
            dict.iter()
                .map(|(name, value)| Some((name.as_str()?.to_owned(), to_json(value)?)))
                .collect::<Option<_>>()?,
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> StateDict {
        [
            ("step_count", StateValue::Int(7)),
            ("group.0.parameters", StateValue::Int(2)),
            ("group.0.lr", StateValue::Float(0.1)),
            ("group.0.beta1", StateValue::Float(0.9)),
            ("group.0.beta2", StateValue::Float(0.99)),
            ("group.1.parameters", StateValue::Int(1)),
            ("group.1.lr", StateValue::Float(0.2)),
            ("group.1.amsgrad", StateValue::Bool(false)),
            ("state.0.step", StateValue::Tensor(Tensor::from(7.0f32))),
            (
                "state.0.exp_avg",
                StateValue::Tensor(Tensor::from_slice(&[1.0f32, 2.0])),
            ),
            (
                "state.2.exp_avg",
                StateValue::Tensor(Tensor::from_slice(&[0.5f64])),
            ),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    fn shown(state: &StateDict) -> Vec<String> {
        let mut lines: Vec<String> = state
            .iter()
            .map(|(name, value)| match value {
                StateValue::Tensor(tensor) => {
                    let values: Vec<f64> = tensor.flatten(0, -1).try_into().unwrap();
                    format!("{name}: {:?} {values:?}", tensor.kind())
                }
                other => format!("{name}: {other:?}"),
            })
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn an_optimizer_goes_through_a_file_in_the_form_of_pytorch() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("optimizer.bin");
        let mut torch = TorchState::default();
        let value = torch.optimizer(&state()).unwrap();
        torch
            .write(TorchWriter::create(&path, &value).unwrap())
            .unwrap();
        let read = read(&path).unwrap();
        let groups = read.get("param_groups").and_then(Value::as_slice).unwrap();
        let numbers = |group: &Value| -> Vec<i128> {
            let params = group.get("params").and_then(Value::as_slice).unwrap();
            params.iter().filter_map(Value::as_int).collect()
        };
        assert_eq!(
            (numbers(&groups[0]), numbers(&groups[1])),
            (vec![0, 1], vec![2])
        );
        assert!(matches!(groups[0].get("betas"), Some(Value::Tuple(both)) if both.len() == 2));
        let back = optimizer(read, "Adam").unwrap();
        assert_eq!(shown(&back), shown(&state()));
    }

    #[test]
    fn what_is_no_state_is_told() {
        let error = optimizer(Value::Int(3), "Adam").unwrap_err().to_string();
        assert!(error.contains("found an int"), "{error}");
        let list: Value = Dict::new().with("lr", Vec::<Value>::new()).into();
        let error = flat(list, "schedule").unwrap_err().to_string();
        assert!(
            error.contains("`lr`") && error.contains("a list"),
            "{error}"
        );
    }

    #[test]
    fn plain_data_comes_back() {
        let data = serde_json::json!({"a": [1, -2.5, null, true, "x"], "b": u64::MAX});
        assert_eq!(to_json(&from_json(data.clone())), Some(data));
    }
}
