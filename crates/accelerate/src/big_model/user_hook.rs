//! Models that share one device in turn.

use std::any::Any;
use std::fmt;
use std::rc::Rc;

use tch::Device;

use crate::Result;
use crate::memory::empty_cuda_cache;
use crate::nn::{FlatMembers, Hook, HookId, Module, ModuleState};
use crate::tree::Tree;

/// Keeps a model in CPU memory until it is called, then moves it to `device` as a whole, where it
/// stays; returns what takes it back.
///
/// For models that run one after another, each several times: `previous`, what this returned for the
/// model before, makes room when this one is called. Outputs stay on the device. Without a `device` it
/// is the first accelerator, or the CPU where there is none.
///
/// ```
/// use accelerate::big_model::cpu_offload_with_hook;
/// use accelerate::nn::{Factory, Forward, Linear};
/// use accelerate::tch::{Device, Kind, Tensor};
///
/// let factory = Factory::default();
/// let (encoder, decoder) = (Linear::new(2, 2, &factory)?, Linear::new(2, 2, &factory)?);
/// let first = cpu_offload_with_hook(&encoder, None, None)?;
/// let second = cpu_offload_with_hook(&decoder, None, Some(&first))?;
/// let hidden = encoder.call(Tensor::f_ones([1, 2], (Kind::Float, Device::Cpu))?)?;
/// let _output = decoder.call(hidden)?;
/// second.offload()?;
/// second.remove();
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Errors
/// [`Error::OnMeta`](crate::Error::OnMeta) if the model has no values.
///
/// # Source
/// `cpu_offload_with_hook`. Differs: inputs are moved whenever they are elsewhere.
pub fn cpu_offload_with_hook(
    model: &dyn Module,
    device: Option<Device>,
    previous: Option<&UserCpuOffloadHook>,
) -> Result<UserCpuOffloadHook> {
    model.to_device(Device::Cpu)?;
    let members = Rc::new(FlatMembers::of(model));
    let hook = CpuOffload {
        members: Rc::clone(&members),
        device: device.unwrap_or_else(first_accelerator),
        previous: previous.map(|previous| Rc::clone(&previous.members)),
    };
    let id = model.add_hook(Rc::new(hook))?;
    Ok(UserCpuOffloadHook {
        members,
        hook: model.state().cloned().map(|state| (state, id)),
    })
}

fn first_accelerator() -> Device {
    if tch::utils::has_mps() {
        return Device::Mps;
    }
    match accelerate_torch::device::count(Device::Cuda(0)) {
        0 => Device::Cpu,
        _ => Device::Cuda(0),
    }
}

/// Takes a model back into CPU memory, or leaves it where it is for good.
///
/// # Source
/// `UserCpuOffloadHook`.
pub struct UserCpuOffloadHook {
    members: Rc<FlatMembers>,
    hook: Option<(ModuleState, HookId)>,
}

impl UserCpuOffloadHook {
    /// Moves the model into CPU memory, until it is called again.
    ///
    /// # Errors
    /// If memory is short.
    pub fn offload(&self) -> Result<()> {
        move_all(&self.members, Device::Cpu)?;
        Ok(empty_cuda_cache()?)
    }

    /// Lets the model stay where it is from now on.
    pub fn remove(&self) {
        if let Some((state, id)) = &self.hook {
            state.remove_hook(*id);
        }
    }
}

impl fmt::Debug for UserCpuOffloadHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserCpuOffloadHook")
            .field(
                "tensors",
                &(self.members.parameters.len() + self.members.buffers.len()),
            )
            .finish_non_exhaustive()
    }
}

/// Moves a model to its device when it is called, and another one away before.
struct CpuOffload {
    members: Rc<FlatMembers>,
    device: Device,
    previous: Option<Rc<FlatMembers>>,
}

impl Hook for CpuOffload {
    fn before_forward(&self, _module: &dyn Module, input: &mut dyn Tree) -> Result<()> {
        if let Some(previous) = &self.previous {
            move_all(previous, Device::Cpu)?;
        }
        move_all(&self.members, self.device)?;
        input.visit_mut(&mut |leaf| {
            if leaf.device() != self.device {
                *leaf = leaf.f_to_device(self.device)?;
            }
            Ok(())
        })
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// Moves every tensor; those that are there already stay the same.
fn move_all(members: &FlatMembers, device: Device) -> Result<()> {
    for (_, parameter) in &members.parameters {
        parameter.to_device(device)?;
    }
    for (_, buffer) in &members.buffers {
        buffer.to_device(device)?;
    }
    Ok(())
}
