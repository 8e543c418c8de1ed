//! Weights that wait elsewhere, here for a while.

use std::rc::Rc;

use accelerate_torch::storage;
use tch::{Device, Tensor};

use super::align_hook::{AlignDevicesHook, hooks_of};
use super::devices::Site;
use super::slot::Slot;
use super::weights::direct_tensors;
use crate::Result;
use crate::nn::Module;

/// Runs `run` while the weights of a module, not those of modules inside, are where they are computed
/// with, or on `device`.
///
/// Weights that wait elsewhere come, as copies that may be written into, and go afterwards; what was
/// written is then lost. Those of a module without such weights are moved to `device`, if it is
/// given, and back.
///
/// # Errors
/// What `run` returns; if memory is short.
///
/// # Source
/// `align_module_device`.
pub fn align_module_device<R>(
    module: &dyn Module,
    device: Option<Device>,
    run: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let hooks = hooks_of(module);
    let hooks: Vec<_> = hooks
        .into_iter()
        .filter(AlignDevicesHook::offloads)
        .collect();
    if !hooks.is_empty() {
        let _here = Here::bring(&hooks, device)?;
        return run();
    }
    let Some(device) = device else { return run() };
    let _moved = Moved::to(module, device)?;
    run()
}

/// Weights that came, until this is dropped.
struct Here {
    hook: Option<AlignDevicesHook>,
    slots: Vec<Rc<Slot>>,
}

impl Here {
    fn bring(hooks: &[AlignDevicesHook], device: Option<Device>) -> Result<Self> {
        let mut here = Self {
            hook: hooks.first().cloned(),
            slots: Vec::new(),
        };
        for hook in hooks {
            let device = device.or(hook.execution_device()).unwrap_or(Device::Cpu);
            let site = Site::of(device);
            for slot in hook.slots() {
                let wanted = slot.wanted(site)?;
                let copy = match slot.source() {
                    Some(source) => Some(source.copied(slot.name(), wanted)?),
                    None => None,
                };
                slot.enter(site, &hook.engine().devices, || Ok(copy))?;
                here.slots.push(Rc::clone(slot));
            }
        }
        Ok(here)
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let Some(hook) = &self.hook else { return };
        for slot in &self.slots {
            if let Err(error) = slot.leave(&hook.engine().devices) {
                tracing::warn!(
                    weight = slot.name(),
                    "a weight stays where it came to: {error}"
                );
            }
        }
    }
}

/// Parameters that were moved, until this is dropped.
struct Moved(Vec<(Tensor, Device)>);

impl Moved {
    fn to(module: &dyn Module, device: Device) -> Result<Self> {
        let mut moved = Self(Vec::new());
        for direct in direct_tensors("", module) {
            let tensor = direct.tensor;
            let from = tensor.device();
            if direct.role.is_parameter() && from != device && !is_meta(&tensor)? {
                move_to(&tensor, device)?;
                moved.0.push((tensor, from));
            }
        }
        Ok(moved)
    }
}

impl Drop for Moved {
    fn drop(&mut self) {
        for (tensor, from) in &self.0 {
            if let Err(error) = move_to(tensor, *from) {
                tracing::warn!("a parameter stays on another device: {error}");
            }
        }
    }
}

fn is_meta(tensor: &Tensor) -> Result<bool> {
    Ok(accelerate_torch::meta::is_meta(tensor)?)
}

fn move_to(tensor: &Tensor, device: Device) -> Result<()> {
    let values = tch::no_grad(|| tensor.f_detach()?.f_to_device(device))?;
    Ok(storage::replace(tensor, &values)?)
}
