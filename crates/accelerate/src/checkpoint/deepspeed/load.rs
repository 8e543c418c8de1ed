//! From folders of DeepSpeed's into any plan, or none: each rank reads what it keeps.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

use accelerate_formats::zero::ZeroState;
use accelerate_formats::{Dict, Dtype, Pieces, Value, ZeroCheckpoint};
use accelerate_torch::storage;
use tch::{Device, Tensor};

use crate::checkpoint::distributed::refuse;
use crate::checkpoint::dtype::kind_of;
use crate::checkpoint::torch_state;
use crate::nn::{Module, all_parameters, all_state};
use crate::optim::{Optimizer, StateDict, StateValue};
use crate::parallel::{Kept, ShardedModel};
use crate::registry::ModelHandle;
use crate::{Error, Result};

/// Reads the weights of a model, of which each rank may keep a part.
///
/// # Errors
/// [`Error::StateMismatch`] naming everything that does not fit, before anything is read;
/// [`Error::Formats`] for a damaged folder.
pub(in crate::checkpoint) fn load_model(
    folder: &Path,
    module: &dyn Module,
    sharded: Option<&ShardedModel>,
) -> Result<()> {
    let checkpoint = ZeroCheckpoint::open(folder, None)?;
    let kept = sharded.map(ShardedModel::kept).unwrap_or_default();
    let own: Vec<Target<'_>> = all_state(module)
        .into_iter()
        .map(|(name, tensor)| Target {
            name,
            tensor,
            kept: kept.get(&storage::identity(tensor)),
        })
        .collect();
    refuse("model", problems(&checkpoint, &own))?;
    own.iter().try_for_each(|target| target.read(&checkpoint))?;
    if let Some(sharded) = sharded {
        sharded.note_values()?;
    }
    Ok(())
}

/// What does not fit.
fn problems(checkpoint: &ZeroCheckpoint, own: &[Target<'_>]) -> Vec<String> {
    let mut saved: HashMap<&str, &[usize]> = checkpoint
        .tensors()
        .map(|header| (header.name.as_str(), header.shape.as_slice()))
        .collect();
    let aliases = checkpoint.aliases();
    let aliases: Vec<_> = aliases
        .filter_map(|(alias, owner)| Some((alias, *saved.get(owner)?)))
        .collect();
    saved.extend(aliases);
    let mut problems = Vec::new();
    for target in own {
        let (name, expected) = (&target.name, target.shape());
        match saved.remove(name.as_str()) {
            None => problems.push(format!("`{name}` is missing")),
            Some(found) if found != expected => {
                problems.push(format!("`{name}`: expected {expected:?}, found {found:?}"));
            }
            Some(_) => {}
        }
    }
    let mut unknown: Vec<&str> = saved.into_keys().collect();
    unknown.sort_unstable();
    problems.extend(unknown.iter().map(|name| format!("`{name}` is unknown")));
    problems
}

/// A tensor to be read, or the part of it that this rank keeps.
struct Target<'m> {
    name: String,
    tensor: &'m Tensor,
    kept: Option<&'m Kept>,
}

impl Target<'_> {
    /// The shape of the whole.
    fn shape(&self) -> Vec<usize> {
        match self.kept {
            Some(kept) => kept.shape.clone(),
            None => {
                let shape = self.tensor.size().into_iter();
                shape
                    .map(|size| usize::try_from(size).unwrap_or(0))
                    .collect()
            }
        }
    }

    fn read(&self, checkpoint: &ZeroCheckpoint) -> Result<()> {
        let name = self.name.as_str();
        if let Some(buffer) = checkpoint.buffer(name) {
            let saved = torch_state::tensor(buffer)?;
            let mut own = self.tensor.f_detach()?;
            tch::no_grad(|| own.f_copy_(&saved))?;
            return Ok(());
        }
        let dtype = checkpoint.tensor(name)?.dtype;
        let pieces = checkpoint.pieces(name)?;
        if let Some(kept) = self.kept {
            return copy_range(pieces, dtype, &kept.range, &kept.values);
        }
        // A tensor in another order is put together beside it.
        let own = self.tensor.f_detach()?;
        let rows = own.f_contiguous()?.f_view([-1])?;
        copy_range(pieces, dtype, &(0..own.numel()), &rows)?;
        if !own.is_contiguous() {
            let shape = own.size();
            let mut own = own;
            tch::no_grad(|| own.f_copy_(&rows.f_view(&shape[..])?))?;
        }
        Ok(())
    }
}

/// Copies a range of the numbers that lie in pieces one behind the other into a vector of its length.
fn copy_range(
    pieces: Pieces<'_>,
    dtype: Dtype,
    range: &Range<usize>,
    target: &Tensor,
) -> Result<()> {
    let kind = kind_of(dtype).ok_or_else(|| Error::Argument {
        operation: "load_state",
        expected: "data types that libtorch has".to_owned(),
        found: format!("`{dtype}`"),
    })?;
    let size = kind.elt_size_in_bytes();
    let mut next = 0;
    for piece in pieces {
        let piece = piece?;
        let count = piece.len() / size;
        let (start, end) = (range.start.max(next), range.end.min(next + count));
        if start < end
            && let Some(bytes) = piece.get((start - next) * size..(end - next) * size)
        {
            let read = Tensor::f_from_data_size(bytes, &[(end - start) as i64], kind)?;
            let place = (start - range.start) as i64;
            let mut place = target.f_narrow(0, place, (end - start) as i64)?;
            tch::no_grad(|| place.f_copy_(&read))?;
        }
        next += count;
    }
    Ok(())
}

/// Goes on from the state of an optimizer: each rank reads what it keeps.
///
/// # Errors
/// [`Error::StateMismatch`] with everything that does not fit.
pub(in crate::checkpoint) fn load_optimizer(
    folder: &Path,
    optimizer: &mut dyn Optimizer,
    models: &[Rc<ModelHandle>],
) -> Result<()> {
    let checkpoint = ZeroCheckpoint::open(folder, None)?;
    let own = parameters(optimizer, models);
    refuse("optimizer", other_groups(&checkpoint, &own))?;
    let mut state = settings(&checkpoint, optimizer.name(), &own)?;
    let mut kept = HashMap::new();
    for sharded in models
        .iter()
        .filter_map(|model| model.gradients().sharded())
    {
        kept.extend(sharded.kept());
    }
    for (number, (name, parameter)) in own.iter().flatten().enumerate() {
        for (kind, saved) in checkpoint.state_of(name)? {
            let value = match saved {
                ZeroState::Single(value) => single(value)?,
                ZeroState::Numbers(dtype) => {
                    let kept = kept.get(&storage::identity(parameter));
                    numbers(&checkpoint, (name.as_str(), kind), dtype, parameter, kept)?
                }
            };
            state.push(format!("state.{number}.{kind}"), StateValue::Tensor(value));
        }
    }
    optimizer.load_state_dict(&state)
}

/// A value that belongs to a whole parameter.
fn single(value: &Value) -> Result<Tensor> {
    match value.as_tensor() {
        Some(stored) => torch_state::tensor(stored),
        None => {
            let number = value.as_f64().ok_or_else(|| Error::StateMismatch {
                target: "optimizer",
                problems: vec![format!("expected a number, found {value:?}")],
            })?;
            Ok(Tensor::from(number as f32))
        }
    }
}

/// A number for each of a parameter's, or of the part that this rank keeps.
fn numbers(
    checkpoint: &ZeroCheckpoint,
    (name, kind): (&str, &str),
    dtype: Dtype,
    parameter: &Tensor,
    kept: Option<&Kept>,
) -> Result<Tensor> {
    let pieces = checkpoint.state_pieces(name, kind)?;
    let of = kind_of(dtype).unwrap_or(tch::Kind::Float);
    match kept {
        Some(kept) => {
            let length = kept.range.len() as i64;
            let values = Tensor::f_zeros([length], (of, Device::Cpu))?;
            copy_range(pieces, dtype, &kept.range, &values)?;
            Ok(values)
        }
        None => {
            let values = Tensor::f_zeros(parameter.size(), (of, Device::Cpu))?;
            let rows = values.f_view([-1])?;
            copy_range(pieces, dtype, &(0..parameter.numel()), &rows)?;
            Ok(values)
        }
    }
}

/// The parameters of one group of an optimizer, with their names.
type Group = Vec<(String, Tensor)>;

fn parameters(optimizer: &dyn Optimizer, models: &[Rc<ModelHandle>]) -> Vec<Group> {
    let mut names = HashMap::new();
    for model in models {
        for (name, parameter) in all_parameters(&**model) {
            names.entry(parameter.identity()).or_insert(name);
        }
    }
    let groups = optimizer.groups();
    let all = (0..groups.len()).map(|number| {
        let own = groups.parameters(number).unwrap_or_default().iter();
        let own = own.map(|parameter| {
            let name = names.get(&storage::identity(parameter)).cloned();
            (name.unwrap_or_default(), parameter.shallow_clone())
        });
        own.collect()
    });
    all.collect()
}

/// Whether the saved groups have other parameters.
fn other_groups(checkpoint: &ZeroCheckpoint, own: &[Group]) -> Vec<String> {
    let saved = checkpoint.groups();
    let mut problems = Vec::new();
    if saved.len() != own.len() {
        problems.push(format!(
            "{} groups saved, {} prepared",
            saved.len(),
            own.len()
        ));
    }
    for (number, (saved, own)) in saved.iter().zip(own).enumerate() {
        if saved.len() != own.len() {
            let (found, expected) = (saved.len(), own.len());
            problems.push(format!(
                "group {number}: expected {expected} parameters, found {found}"
            ));
        }
        for (place, (found, (expected, _))) in saved.iter().zip(own).enumerate() {
            if found != expected {
                problems.push(format!(
                    "parameter {place} of group {number}: expected `{expected}`, found `{found}`"
                ));
            }
        }
    }
    problems
}

/// Everything but what is kept of parameters.
fn settings(checkpoint: &ZeroCheckpoint, target: &'static str, own: &[Group]) -> Result<StateDict> {
    let saved = checkpoint.optimizer().cloned();
    let saved = saved.unwrap_or_else(|| Dict::new().into());
    let flat = torch_state::optimizer(saved, target)?;
    let mut state = StateDict::new();
    for (name, value) in flat.iter().filter(|(name, _)| !name.starts_with("state.")) {
        let group = name.strip_prefix("group.");
        let group = group.and_then(|rest| rest.strip_suffix(".parameters"));
        let group = group.and_then(|number| own.get(number.parse::<usize>().ok()?));
        let value = match group {
            // One vector stands for all of them.
            Some(group) => StateValue::Int(group.len() as i64),
            None => value.handle(),
        };
        state.push(name, value);
    }
    Ok(state)
}
