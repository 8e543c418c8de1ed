use std::fmt;

/// How the processes of a job work together.
///
/// # Source
/// `accelerate.DistributedType`, as far as this version can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DistributedType {
    /// One process by itself.
    No,
    /// Several processes on CPUs.
    MultiCpu,
    /// Several processes, each with a CUDA device.
    MultiGpu,
    /// Several processes, each with a part of the model, in the words of FSDP.
    Fsdp,
    /// Several processes, each with a part of the training state, in the words of DeepSpeed.
    DeepSpeed,
}

impl DistributedType {
    /// The name, which is also its text in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::No => "NO",
            Self::MultiCpu => "MULTI_CPU",
            Self::MultiGpu => "MULTI_GPU",
            Self::Fsdp => "FSDP",
            Self::DeepSpeed => "DEEPSPEED",
        }
    }
}

impl fmt::Display for DistributedType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DistributedType.{}", self.name())
    }
}
