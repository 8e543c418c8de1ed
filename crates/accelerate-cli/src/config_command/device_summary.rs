//! What the questionnaire has to know about the devices of this machine.

use accelerate_plan::env::Environment;

use crate::machine::{Devices, Kind, Root};

/// Devices of the kind that programs would use here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceSummary {
    pub(crate) kind: DeviceKind,
    /// How many there are; 0 where there is only the CPU.
    pub(crate) count: usize,
}

/// A kind of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    Cpu,
    Cuda,
    Xpu,
    Hpu,
    Npu,
    Mlu,
    Sdaa,
    Musa,
    Neuron,
    /// The GPU of an Apple computer, of which there is one.
    Mps,
}

impl DeviceSummary {
    /// The accelerators of this machine that programs may use.
    ///
    /// # Errors
    /// If a variable that hides some of them cannot be read.
    pub(crate) fn read() -> accelerate_plan::Result<Self> {
        let devices = Devices::read(&Root::machine(), &Environment::from_process())?;
        Ok(devices.kind.map_or(Self::CPU_ONLY, |kind| Self {
            kind: kind.into(),
            count: devices.count(),
        }))
    }

    /// A machine without accelerators.
    pub(crate) const CPU_ONLY: Self = Self {
        kind: DeviceKind::Cpu,
        count: 0,
    };

    /// The `distributed_type` that uses all devices.
    pub(crate) fn distributed_type(self) -> &'static str {
        match self.kind {
            _ if self.count < 2 => "NO",
            DeviceKind::Cpu | DeviceKind::Mps => "NO",
            DeviceKind::Cuda => "MULTI_GPU",
            DeviceKind::Xpu => "MULTI_XPU",
            DeviceKind::Hpu => "MULTI_HPU",
            DeviceKind::Npu => "MULTI_NPU",
            DeviceKind::Mlu => "MULTI_MLU",
            DeviceKind::Sdaa => "MULTI_SDAA",
            DeviceKind::Musa => "MULTI_MUSA",
            DeviceKind::Neuron => "MULTI_NEURON",
        }
    }
}

impl From<Kind> for DeviceKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Cuda | Kind::Rocm => Self::Cuda,
            Kind::Xpu => Self::Xpu,
            Kind::Mlu => Self::Mlu,
            Kind::Sdaa => Self::Sdaa,
            Kind::Musa => Self::Musa,
            Kind::Npu => Self::Npu,
            Kind::Hpu => Self::Hpu,
            Kind::Neuron => Self::Neuron,
            Kind::Mps => Self::Mps,
        }
    }
}

impl DeviceKind {
    /// What several of them are called; `GPUs` where there is nothing but a CPU, since the file may
    /// be meant for another machine.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Cpu | Self::Cuda | Self::Mps => "GPUs",
            Self::Xpu => "XPUs",
            Self::Hpu => "HPUs",
            Self::Npu => "NPUs",
            Self::Mlu => "MLUs",
            Self::Sdaa => "SDAAs",
            Self::Musa => "MUSAs",
            Self::Neuron => "Neuron cores",
        }
    }
}
