//! Kinds of accelerators.

use std::fmt;

use accelerate_plan::env::{
    ASCEND_RT_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES, HABANA_VISIBLE_MODULES, HIP_VISIBLE_DEVICES,
    MLU_VISIBLE_DEVICES, MUSA_VISIBLE_DEVICES, NEURON_RT_VISIBLE_CORES, SDAA_VISIBLE_DEVICES,
    Variable, ZE_AFFINITY_MASK,
};

/// A kind of accelerators: those that one build of PyTorch computes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// NVIDIA.
    Cuda,
    /// AMD. PyTorch calls them CUDA too.
    Rocm,
    /// Intel.
    Xpu,
    /// Cambricon.
    Mlu,
    /// Tecorigin.
    Sdaa,
    /// Moore Threads.
    Musa,
    /// Huawei Ascend.
    Npu,
    /// Intel Gaudi.
    Hpu,
    /// AWS Trainium and Inferentia; each core counts as a device.
    Neuron,
    /// The GPU inside Apple's chips.
    Mps,
}

impl Kind {
    /// All kinds, in the order in which a machine is searched for them.
    pub(crate) const ALL: [Self; 10] = [
        Self::Cuda,
        Self::Rocm,
        Self::Xpu,
        Self::Mlu,
        Self::Sdaa,
        Self::Musa,
        Self::Npu,
        Self::Hpu,
        Self::Neuron,
        Self::Mps,
    ];

    /// The name that PyTorch has for devices of this kind, in capitals.
    pub(crate) fn torch_name(self) -> &'static str {
        match self {
            Self::Cuda | Self::Rocm => "CUDA",
            Self::Xpu => "XPU",
            Self::Mlu => "MLU",
            Self::Sdaa => "SDAA",
            Self::Musa => "MUSA",
            Self::Npu => "NPU",
            Self::Hpu => "HPU",
            Self::Neuron => "NEURON",
            Self::Mps => "MPS",
        }
    }

    /// The variable by which a program is told which devices to use. Apple's machines have one
    /// device and no variable of their own; nothing reads NVIDIA's there.
    pub(crate) fn visible_variable(self) -> &'static Variable<String> {
        match self {
            Self::Cuda | Self::Mps => &CUDA_VISIBLE_DEVICES,
            Self::Rocm => &HIP_VISIBLE_DEVICES,
            Self::Xpu => &ZE_AFFINITY_MASK,
            Self::Mlu => &MLU_VISIBLE_DEVICES,
            Self::Sdaa => &SDAA_VISIBLE_DEVICES,
            Self::Musa => &MUSA_VISIBLE_DEVICES,
            Self::Npu => &ASCEND_RT_VISIBLE_DEVICES,
            Self::Hpu => &HABANA_VISIBLE_MODULES,
            Self::Neuron => &NEURON_RT_VISIBLE_CORES,
        }
    }
}

impl fmt::Display for Kind {
    /// What to call a device of this kind in a sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cuda => "NVIDIA device",
            Self::Rocm => "AMD device",
            Self::Xpu => "Intel device",
            Self::Mlu => "Cambricon device",
            Self::Sdaa => "Tecorigin device",
            Self::Musa => "Moore Threads device",
            Self::Npu => "Ascend device",
            Self::Hpu => "Gaudi device",
            Self::Neuron => "Neuron core",
            Self::Mps => "Apple device",
        })
    }
}
