//! Accelerators of this machine, and which of them programs may use.

mod amd;
mod kind;
mod memory;
mod nvidia;
mod others;
mod visible;

use accelerate_plan::{Result, env::Environment};

pub(crate) use kind::Kind;
pub(crate) use memory::device_memory;
pub(crate) use visible::Visible;

use super::Root;

/// One accelerator, with what is known about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Device {
    /// Name of the model.
    pub(crate) name: Option<String>,
    /// Name that no other device has, as its maker's tools show it.
    pub(crate) uuid: Option<String>,
    /// Address on the PCI bus, such as `0000:19:00.0`.
    pub(crate) pci: Option<String>,
    /// Whether it computes in bf16.
    pub(crate) bf16: Bf16,
}

/// Whether a device computes in bf16.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Bf16 {
    /// At full speed.
    Native,
    /// Only by way of fp32: right, but slow.
    Emulated,
    /// Nothing here tells.
    #[default]
    Unknown,
}

/// The accelerators of one kind.
///
/// Programs number the usable ones from 0, in order. Devices of a second kind on the same machine
/// are not looked at: a job uses one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Devices {
    /// Which kind; `None` on a machine without any.
    pub(crate) kind: Option<Kind>,
    /// All that this machine, or its container, has.
    pub(crate) present: Vec<Device>,
    /// Those among them that the environment leaves visible.
    pub(crate) usable: Vec<Device>,
    /// The variable that restricts them.
    pub(crate) visible: Option<Visible>,
}

impl Devices {
    /// Finds the accelerators of the first kind of which there are any, in the order of
    /// [`Kind::ALL`], and reads the variables that hide some of them.
    ///
    /// # Errors
    /// If such a variable is not UTF-8.
    pub(crate) fn read(root: &Root, env: &Environment) -> Result<Self> {
        let found = Kind::ALL.into_iter().find_map(|kind| {
            let present = present(kind, root);
            (!present.is_empty()).then_some((kind, present))
        });
        let Some((kind, present)) = found else {
            return Ok(Self::default());
        };
        let (usable, visible) = visible::restrict(kind, &present, env)?;
        Ok(Self {
            kind: Some(kind),
            present,
            usable,
            visible,
        })
    }

    /// How many devices programs may use.
    pub(crate) fn count(&self) -> usize {
        self.usable.len()
    }

    /// Whether the usable devices compute in bf16. Of different ones, the weakest counts.
    pub(crate) fn bf16(&self) -> Bf16 {
        let all = |known| self.usable.iter().all(|device| device.bf16 == known);
        let any = |known| self.usable.iter().any(|device| device.bf16 == known);
        match () {
            () if self.usable.is_empty() => Bf16::Unknown,
            () if all(Bf16::Native) => Bf16::Native,
            () if any(Bf16::Emulated) => Bf16::Emulated,
            () => Bf16::Unknown,
        }
    }

    /// The variable by which a program is told which devices to use. Without a device, the one of
    /// NVIDIA.
    pub(crate) fn visible_variable(&self) -> &'static accelerate_plan::env::Variable<String> {
        self.kind.unwrap_or(Kind::Cuda).visible_variable()
    }
}

fn present(kind: Kind, root: &Root) -> Vec<Device> {
    match kind {
        Kind::Cuda => nvidia::present(root),
        Kind::Rocm => amd::present(root),
        _ => others::present(kind, root),
    }
}

#[cfg(test)]
mod tests;
