//! What is known about the job from the answers so far.

use super::deepspeed;
use crate::config_command::device_summary::{DeviceKind, DeviceSummary};

/// The answers that decide which questions come next.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) machine: Machine,
    pub(super) num_machines: i64,
    pub(super) use_cpu: bool,
    /// The devices of the machine at which the questions are asked.
    pub(super) devices: DeviceSummary,
}

impl Job {
    /// Whether the job runs on the GPU of an Apple computer.
    pub(super) fn on_mps(&self) -> bool {
        !self.use_cpu && self.devices.kind == DeviceKind::Mps
    }

    /// The `distributed_type` of the file.
    pub(super) fn distributed_type(&self, strategy: Strategy) -> &'static str {
        match strategy {
            Strategy::Plain => self.machine.name(),
            Strategy::DeepSpeed(_) => "DEEPSPEED",
            Strategy::Fsdp => "FSDP",
            Strategy::MegatronLm => "MEGATRON_LM",
        }
    }
}

/// The library that shares the work between processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// None but the usual data parallelism.
    Plain,
    DeepSpeed(deepspeed::Settings),
    Fsdp,
    MegatronLm,
}

/// A kind of machine, as the questionnaire tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Machine {
    Alone,
    MultiCpu,
    MultiXpu,
    MultiHpu,
    MultiGpu,
    MultiNpu,
    MultiMlu,
    MultiSdaa,
    MultiMusa,
    MultiNeuron,
    Tpu,
}

impl Machine {
    /// In the order of the menu.
    pub(super) const ALL: [Self; 11] = [
        Self::Alone,
        Self::MultiCpu,
        Self::MultiXpu,
        Self::MultiHpu,
        Self::MultiGpu,
        Self::MultiNpu,
        Self::MultiMlu,
        Self::MultiSdaa,
        Self::MultiMusa,
        Self::MultiNeuron,
        Self::Tpu,
    ];

    /// The text of the menu.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Alone => "No distributed training",
            Self::MultiCpu => "multi-CPU",
            Self::MultiXpu => "multi-XPU",
            Self::MultiHpu => "multi-HPU",
            Self::MultiGpu => "multi-GPU",
            Self::MultiNpu => "multi-NPU",
            Self::MultiMlu => "multi-MLU",
            Self::MultiSdaa => "multi-SDAA",
            Self::MultiMusa => "multi-MUSA",
            Self::MultiNeuron => "multi-NEURON",
            Self::Tpu => "TPU",
        }
    }

    /// The value in the file.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Alone => "NO",
            Self::MultiCpu => "MULTI_CPU",
            Self::MultiXpu => "MULTI_XPU",
            Self::MultiHpu => "MULTI_HPU",
            Self::MultiGpu => "MULTI_GPU",
            Self::MultiNpu => "MULTI_NPU",
            Self::MultiMlu => "MULTI_MLU",
            Self::MultiSdaa => "MULTI_SDAA",
            Self::MultiMusa => "MULTI_MUSA",
            Self::MultiNeuron => "MULTI_NEURON",
            Self::Tpu => "XLA",
        }
    }

    /// What one process runs on, of which the job uses several.
    pub(super) fn units(self) -> &'static str {
        match self {
            Self::Alone | Self::MultiCpu => "processes",
            Self::MultiXpu => "XPUs",
            Self::MultiHpu => "HPUs",
            Self::MultiGpu => "GPUs",
            Self::MultiNpu => "NPUs",
            Self::MultiMlu => "MLUs",
            Self::MultiSdaa => "SDAAs",
            Self::MultiMusa => "MUSAs",
            Self::MultiNeuron => "Neuron cores",
            Self::Tpu => "TPU cores",
        }
    }

    /// Whether several processes with an accelerator each work together through PyTorch.
    pub(super) fn has_accelerators(self) -> bool {
        !matches!(self, Self::Alone | Self::MultiCpu | Self::Tpu)
    }

    /// Whether there may be several machines.
    pub(super) fn is_distributed(self) -> bool {
        !matches!(self, Self::Alone | Self::Tpu)
    }
}
