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
}

impl DistributedType {
    /// The name, which is also its text in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::No => "NO",
            Self::MultiCpu => "MULTI_CPU",
            Self::MultiGpu => "MULTI_GPU",
        }
    }
}

impl fmt::Display for DistributedType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DistributedType.{}", self.name())
    }
}
