//! What a dispatched model knows of itself.

use std::any::Any;
use std::rc::Rc;

use accelerate_plan::device_map::DeviceMap;
use accelerate_plan::env::{BYPASS_DEVICE_MAP, Environment};
use tch::Device;

use super::align_hook::{AlignDevicesHook, hooks_of};
use crate::nn::{Hook, Module};
use crate::state::PartialState;
use crate::{Error, Result};

/// Keeps the map of a dispatched model, and the model from being moved.
#[derive(Debug, Clone)]
pub(super) struct Dispatched {
    map: Rc<DeviceMap>,
    /// Whether parts of the model are in different places.
    is_spread: bool,
}

impl Dispatched {
    pub(super) fn new(map: Rc<DeviceMap>, is_spread: bool) -> Self {
        Self { map, is_spread }
    }

    fn of(model: &dyn Module) -> Option<Self> {
        model.state()?.hooks_of().pop()
    }
}

impl Hook for Dispatched {
    fn before_move(&self, module: &dyn Module, device: Device) -> Result<()> {
        if !self.is_spread {
            return Ok(());
        }
        let offloaded = offloaded_names(module);
        if offloaded.is_empty() {
            tracing::warn!(
                class = module.class_name(),
                ?device,
                "a model that is spread over devices by its map is moved to one"
            );
            return Ok(());
        }
        Err(Error::MovesDispatched {
            class: module.class_name(),
            offloaded,
        })
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// The map that a model was dispatched by; none if it was not.
///
/// # Source
/// `hf_device_map`.
pub fn device_map_of(model: &dyn Module) -> Option<Rc<DeviceMap>> {
    Dispatched::of(model).map(|dispatched| dispatched.map)
}

/// The names of weights in and below a module that wait elsewhere, tied ones under their first.
pub(super) fn offloaded_names(module: &dyn Module) -> Vec<String> {
    let mut names = Vec::new();
    for (_, module) in module.named_modules() {
        for hook in hooks_of(module) {
            let away = hook.slots().iter().filter(|slot| slot.source().is_some());
            names.extend(away.map(|slot| slot.name().to_owned()));
        }
    }
    names.sort();
    names.dedup();
    names
}

/// Whether weights in or below a module wait elsewhere.
pub(crate) fn is_offloaded(module: &dyn Module) -> bool {
    let all = module.named_modules();
    let mut hooks = all.iter().flat_map(|(_, module)| hooks_of(*module));
    hooks.any(|hook| hook.offloads())
}

/// Refuses to train a model with all ranks that its map has spread over several places.
///
/// # Errors
/// [`Error::TrainsDispatched`], unless `ACCELERATE_BYPASS_DEVICE_MAP` is true.
pub(crate) fn check_trainable(
    model: &dyn Module,
    state: &PartialState,
    env: &Environment,
) -> Result<()> {
    let Some(map) = device_map_of(model) else {
        return Ok(());
    };
    let bypassed = env.get(&BYPASS_DEVICE_MAP)?.unwrap_or(false);
    if state.num_processes() == 1 || map.placements().len() < 2 || bypassed {
        return Ok(());
    }
    let places: Vec<String> = map.placements().iter().map(ToString::to_string).collect();
    Err(Error::TrainsDispatched {
        class: model.class_name(),
        places,
        processes: state.num_processes(),
    })
}

/// Takes everything off a model, and of the modules inside, that [`dispatch_model`](super::dispatch_model) and its like
/// attached. Weights that wait elsewhere come to where they were before; those that were nowhere, as
/// in a model that was loaded in parts, come into CPU memory if `bring_back`, else stay on the meta
/// device.
///
/// # Errors
/// If memory is short; hooks that are not removed yet then stay.
///
/// # Source
/// `remove_hook_from_submodules`. Differs: hooks of other kinds stay, and everything can be brought
/// back.
pub fn remove_hooks(model: &dyn Module, bring_back: bool) -> Result<()> {
    for (_, module) in model.named_modules() {
        let Some(state) = module.state() else {
            continue;
        };
        for hook in hooks_of(module) {
            restore(&hook, bring_back)?;
        }
        state.take_hooks::<AlignDevicesHook>();
        state.take_hooks::<Dispatched>();
    }
    Ok(())
}

fn restore(hook: &AlignDevicesHook, bring_back: bool) -> Result<()> {
    for slot in hook.slots() {
        slot.go_home(bring_back)?;
    }
    Ok(())
}
