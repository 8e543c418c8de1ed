//! Where is kept what does not stay on the device.

use std::{fmt, path::PathBuf};

/// Where something is kept while it is not computed with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Storage {
    /// On the device.
    Device,
    /// In CPU memory.
    Cpu {
        /// Whether in memory that the system does not move, which a device can read by itself.
        is_pinned: bool,
    },
    /// In files, which each rank has its own of.
    Disk {
        /// The folder for all ranks of a machine.
        folder: PathBuf,
    },
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => f.pad("on the device"),
            Self::Cpu { is_pinned: true } => f.pad("in pinned CPU memory"),
            Self::Cpu { is_pinned: false } => f.pad("in CPU memory"),
            Self::Disk { folder } => write!(f, "on disk, in `{}`", folder.display()),
        }
    }
}

/// Where parameters, gradients and optimizer state are kept. In the words of FSDP all three move
/// together; in those of DeepSpeed gradients go with the optimizer state.
#[derive(Debug, Clone, PartialEq)]
pub struct Offload {
    /// Shards of the parameters that are computed with.
    pub parameters: Storage,
    /// Reduced gradients.
    pub gradients: Storage,
    /// State of the optimizer, and the float32 copies of parameters where there are any. The step is
    /// computed by the CPU unless this is [`Storage::Device`].
    pub optimizer_state: Storage,
    /// Part of the optimizer state that is kept there, from 0 to 1; the rest stays on the device.
    pub optimizer_ratio: f64,
    /// How files are read and written.
    pub disk: DiskTraffic,
}

impl Offload {
    /// Everything stays on the device.
    pub fn nothing() -> Self {
        Self::everything(Storage::Device)
    }

    /// Parameters, gradients and optimizer state in one place.
    pub fn everything(storage: Storage) -> Self {
        Self {
            parameters: storage.clone(),
            gradients: storage.clone(),
            optimizer_state: storage,
            optimizer_ratio: 1.0,
            disk: DiskTraffic::default(),
        }
    }

    /// Whether everything stays on the device.
    pub fn is_nothing(&self) -> bool {
        [&self.parameters, &self.gradients, &self.optimizer_state]
            .into_iter()
            .all(|storage| *storage == Storage::Device)
    }
}

/// How files of offloaded tensors are read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DiskTraffic {
    /// Elements that are read, updated and written at once.
    pub sub_group_size: u64,
    /// Buffers for parameters.
    pub param_buffers: u64,
    /// Elements of each of them.
    pub param_buffer_size: u64,
    /// Elements of parameters that may wait in CPU memory.
    pub max_in_cpu: u64,
    /// Buffers for each parameter's optimizer state.
    pub optimizer_buffers: u64,
    /// Whether the next group is read while one is updated.
    pub reads_ahead: bool,
    /// Whether the previous group is written while one is updated.
    pub writes_behind: bool,
    /// Bytes of one request to the disk.
    pub block_bytes: u64,
    /// Requests on their way at once.
    pub queue_depth: u64,
}

impl Default for DiskTraffic {
    fn default() -> Self {
        Self {
            sub_group_size: 1_000_000_000,
            param_buffers: 5,
            param_buffer_size: 100_000_000,
            max_in_cpu: 1_000_000_000,
            optimizer_buffers: 4,
            reads_ahead: false,
            writes_behind: false,
            block_bytes: 1 << 20,
            queue_depth: 8,
        }
    }
}
