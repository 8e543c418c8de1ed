//! The state of an optimizer, of whole parameters and of the parts that a rank keeps.

use std::collections::HashMap;
use std::rc::Rc;

use accelerate_torch::storage;
use tch::{Kind, Tensor};

use super::flat::{Flat, length, part};
use super::model::ShardedModel;
use crate::Result;
use crate::collectives::Site;
use crate::optim::{Optimizer, StateDict, StateValue};

/// What counts steps and belongs to no number of the parameter.
const STEP: &str = "step";

/// The state of an optimizer with whole tensors, on the ranks that `keeps` them.
///
/// # Collective
/// Every rank calls this, if any of the models is sharded.
pub(crate) fn whole_state_of(
    models: &[Rc<ShardedModel>],
    optimizer: &dyn Optimizer,
    keeps: bool,
) -> Result<StateDict> {
    let state = optimizer.state_dict()?;
    let mut whole = HashMap::new();
    visit_whole_state(models, optimizer, &state, keeps, |number, kind, tensor| {
        if keeps {
            whole.insert(format!("state.{number}.{kind}"), tensor);
        }
        Ok(())
    })?;
    Ok(with(&state, whole))
}

/// Hands out whole what an optimizer keeps of each parameter, with the parameter's number and the
/// kind. Memory is needed for one storage at a time; what `visit` keeps of a tensor keeps the whole
/// storage, which is on disk where anything of the model is and `keeps` says so.
///
/// # Collective
/// Every rank calls this, if any of the models is sharded. An error of `visit` leaves other ranks
/// waiting: let it fail for nothing that is not the same on all.
pub(crate) fn visit_whole_state(
    models: &[Rc<ShardedModel>],
    optimizer: &dyn Optimizer,
    state: &StateDict,
    keeps: bool,
    mut visit: impl FnMut(usize, &str, Tensor) -> Result<()>,
) -> Result<()> {
    let numbers = numbers(optimizer);
    models.iter().try_for_each(|model| {
        let site = Site::Model(model.class);
        model.state.counted("whole optimizer state", site, |_| {
            gather(model, &numbers, state, keeps, &mut visit)
        })
    })
}

/// The parts of an optimizer's whole state that belong to what this rank keeps.
pub(crate) fn slices_of_state(
    models: &[Rc<ShardedModel>],
    optimizer: &dyn Optimizer,
    state: &StateDict,
) -> Result<StateDict> {
    let mut own = HashMap::new();
    let numbers = numbers(optimizer);
    for model in models {
        let engine = model.engine.lock();
        for member in engine.members() {
            let Some(number) = numbers.get(&storage::identity(&member.parameter)) else {
                continue;
            };
            for (name, tensor) in tensors_of(state, *number) {
                if tensor.size() != member.shape {
                    continue;
                }
                let range = member.range;
                let flat = tensor.f_reshape([-1])?;
                own.insert(
                    name.to_owned(),
                    part(&flat, range.in_parameter, range.length)?,
                );
            }
        }
    }
    Ok(with(state, own))
}

/// A state with other tensors under some of its names.
fn with(state: &StateDict, mut others: HashMap<String, Tensor>) -> StateDict {
    let entries = state.iter().map(|(name, value)| {
        let value = match others.remove(name) {
            Some(other) => StateValue::Tensor(other),
            None => value.handle(),
        };
        (name.to_owned(), value)
    });
    entries.collect()
}

/// The number of each parameter in the optimizer, by the identity of its tensor.
fn numbers(optimizer: &dyn Optimizer) -> HashMap<usize, usize> {
    let parameters = optimizer.groups().iter().enumerate();
    parameters
        .map(|(number, parameter)| (storage::identity(parameter), number))
        .collect()
}

/// The tensors that belong to the numbers of one parameter, with their full names.
fn tensors_of(state: &StateDict, number: usize) -> impl Iterator<Item = (&str, &Tensor)> {
    let prefix = format!("state.{number}.");
    state.iter().filter_map(move |(name, value)| {
        let kind = name.strip_prefix(&prefix)?;
        match value {
            StateValue::Tensor(tensor) if kind != STEP => Some((name, tensor)),
            _ => None,
        }
    })
}

/// Makes the state of one model's parameters whole, and hands it out.
fn gather(
    model: &ShardedModel,
    numbers: &HashMap<usize, usize>,
    state: &StateDict,
    keeps: bool,
    visit: &mut dyn FnMut(usize, &str, Tensor) -> Result<()>,
) -> Result<()> {
    let engine = model.engine.lock();
    // A rank that cannot keep what it gets still brings its part to the others.
    let mut done: Result<()> = Ok(());
    for flat in engine.units.iter().flat_map(|unit| &unit.flats) {
        for (kind, entries) in by_kind(flat, numbers, state) {
            let shard = assembled(flat, &entries)?;
            let group = &model.engine.groups.gather;
            let gathered = flat.gathered(&shard, group, keeps && done.is_ok())?;
            done = done.and_then(|()| {
                let views = flat.cut(&gathered?)?;
                for entry in entries {
                    if let Some(view) = views.get(entry.member) {
                        visit(entry.number, &kind, view.shallow_clone())?;
                    }
                }
                Ok(())
            });
        }
    }
    done
}

/// The tensor of one kind that belongs to one parameter of a storage.
struct Entry<'s> {
    member: usize,
    number: usize,
    tensor: &'s Tensor,
}

/// The tensors of all parameters of a storage, by kind, in the same order on every rank.
fn by_kind<'s>(
    flat: &Flat,
    numbers: &HashMap<usize, usize>,
    state: &'s StateDict,
) -> Vec<(String, Vec<Entry<'s>>)> {
    let mut kinds: Vec<(String, Vec<Entry<'s>>)> = Vec::new();
    for (member, own) in flat.members.iter().enumerate() {
        let Some(&number) = numbers.get(&storage::identity(&own.parameter)) else {
            continue;
        };
        for (name, tensor) in tensors_of(state, number) {
            if tensor.size() != own.slice.size() {
                continue;
            }
            let kind = name.rsplit('.').next().unwrap_or(name);
            let entry = Entry {
                member,
                number,
                tensor,
            };
            match kinds.iter_mut().find(|(known, _)| known == kind) {
                Some((_, entries)) => entries.push(entry),
                None => kinds.push((kind.to_owned(), vec![entry])),
            }
        }
    }
    kinds
}

/// A shard with these tensors where their parameters' slices are.
fn assembled(flat: &Flat, entries: &[Entry<'_>]) -> Result<Tensor> {
    let kind = match entries.first() {
        Some(entry) => entry.tensor.f_kind()?,
        None => Kind::Float,
    };
    let options = (kind, flat.shard.device());
    let shard = Tensor::f_zeros([length(flat.layout.shard())], options)?;
    for entry in entries {
        if let Some(member) = flat.members.get(entry.member) {
            let mut place = part(&shard, member.range.in_shard, member.range.length)?;
            tch::no_grad(|| place.f_copy_(entry.tensor))?;
        }
    }
    Ok(shard)
}
