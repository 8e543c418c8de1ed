//! The weights of a model that is spread over places, as one state dict.

use std::collections::HashMap;

use accelerate_torch::{meta, storage};
use tch::{Device, Tensor};

use super::align_hook::hooks_of;
use super::source::Wanted;
use crate::checkpoint::StateDict;
use crate::nn::{self, Module};
use crate::{Error, Result};

/// Every parameter and persistent buffer by name, those that wait elsewhere among them, in the type
/// that the model computes with and on the CPU.
///
/// A weight that waits in a file in that type is mapped, so that the whole needs no more memory than
/// is read of it at a time. Not to be written into. Tied weights are one tensor under all their names.
///
/// # Errors
/// [`Error::OnMeta`] naming weights that have no values anywhere; what reading a file reports.
///
/// # Source
/// `get_state_dict_offloaded_model`. Differs: weights without values are an error and no warning; the
/// root's own weights are there too.
pub fn get_state_dict_offloaded_model(model: &dyn Module) -> Result<StateDict> {
    let mut kept = HashMap::new();
    for (_, module) in model.named_modules() {
        for hook in hooks_of(module) {
            for slot in hook.slots() {
                if slot.source().is_some() {
                    kept.insert(storage::identity(slot.tensor()), std::rc::Rc::clone(slot));
                }
            }
        }
    }
    let mut brought: HashMap<usize, Tensor> = HashMap::new();
    let mut lacking = Vec::new();
    let mut state = StateDict::new();
    for (name, tensor) in nn::all_state(model) {
        let identity = storage::identity(tensor);
        if let Some(values) = brought.get(&identity) {
            state.insert(name, values.shallow_clone());
            continue;
        }
        let values = match kept
            .get(&identity)
            .and_then(|slot| Some((slot, slot.source()?)))
        {
            Some((slot, source)) => {
                let (kind, device) = (slot.kind()?, Device::Cpu);
                source.made(slot.name(), Wanted { kind, device }, None)?
            }
            None if meta::is_meta(tensor)? => {
                lacking.push(format!("`{name}`"));
                continue;
            }
            None => tch::no_grad(|| tensor.f_detach()?.f_to_device(Device::Cpu))?,
        };
        brought.insert(identity, values.shallow_clone());
        state.insert(name, values);
    }
    match lacking.is_empty() {
        true => Ok(state),
        false => Err(Error::OnMeta {
            operation: "get_state_dict_offloaded_model",
            tensors: lacking,
        }),
    }
}
