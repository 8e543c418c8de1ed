//! How a checkpoint is loaded.

use std::path::PathBuf;

use accelerate_plan::device_map::DeviceMap;
use tch::Kind;

use super::devices::DeviceTable;
use crate::checkpoint::LoadOptions;
use crate::state::PartialState;

/// How [`load_checkpoint_in_model`](super::load_checkpoint_in_model) loads.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LoadCheckpointOptions<'a> {
    /// How closely the checkpoint has to fit, and what its names mean; strict if not changed.
    pub fit: LoadOptions<'a>,
    /// Where each weight goes; without a map, all go to where the model has its own, or to the CPU.
    pub device_map: Option<DeviceMap>,
    /// Where weights that are mapped to disk are written, or an index that says in which safetensors
    /// file they are. Not needed where the files of the checkpoint can serve as they are.
    pub offload_folder: Option<PathBuf>,
    /// The type that floating-point weights become; that of the model if not given.
    pub dtype: Option<Kind>,
    /// Parts of names whose weights stay in 32 bits when [`dtype`](Self::dtype) is `Half`: they
    /// overflow in its range.
    pub keep_in_fp32_modules: Vec<String>,
    /// Whether persistent buffers that are mapped to disk stay there too; if not they are loaded.
    pub offload_buffers: bool,
    /// Which device each place is.
    pub devices: DeviceTable,
    /// The ranks, if only rank 0 is to read files and the others are to get the values from it.
    /// Without a map only.
    pub broadcast_from_rank0: Option<&'a PartialState>,
}

impl<'a> LoadCheckpointOptions<'a> {
    /// Chooses how closely the checkpoint has to fit.
    #[must_use]
    pub fn with_fit(mut self, fit: LoadOptions<'a>) -> Self {
        self.fit = fit;
        self
    }

    /// Chooses where each weight goes.
    #[must_use]
    pub fn with_device_map(mut self, device_map: DeviceMap) -> Self {
        self.device_map = Some(device_map);
        self
    }

    /// Chooses the folder for weights that are mapped to disk.
    #[must_use]
    pub fn with_offload_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.offload_folder = Some(folder.into());
        self
    }

    /// Chooses the type that floating-point weights become.
    #[must_use]
    pub fn with_dtype(mut self, dtype: Kind) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Adds a part of names whose weights stay in 32 bits when the type is `Half`.
    #[must_use]
    pub fn with_keep_in_fp32(mut self, part: impl Into<String>) -> Self {
        self.keep_in_fp32_modules.push(part.into());
        self
    }

    /// Chooses whether persistent buffers that are mapped to disk stay there.
    #[must_use]
    pub fn with_offload_buffers(mut self, offload_buffers: bool) -> Self {
        self.offload_buffers = offload_buffers;
        self
    }

    /// Chooses which device each place is.
    #[must_use]
    pub fn with_devices(mut self, devices: DeviceTable) -> Self {
        self.devices = devices;
        self
    }

    /// Lets rank 0 read, and send the values to the others.
    #[must_use]
    pub fn with_broadcast_from_rank0(mut self, state: &'a PartialState) -> Self {
        self.broadcast_from_rank0 = Some(state);
        self
    }
}
