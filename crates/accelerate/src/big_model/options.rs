//! How a model is dispatched.

use std::path::PathBuf;

use accelerate_plan::device_map::Placement;

use super::devices::DeviceTable;
use super::prefetch::Prefetch;

/// How [`dispatch_model`](super::dispatch_model) and its like spread a model.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct DispatchOptions {
    /// Where weights in CPU memory or on disk are computed with: the first accelerator of the map, or
    /// the CPU, if not given.
    pub main_device: Option<Placement>,
    /// The folder for weights on disk. One with an index may be given for a model without values.
    pub offload_folder: Option<PathBuf>,
    /// Whether persistent buffers wait elsewhere as parameters do; if not, they are always where they
    /// are computed with.
    pub offload_buffers: bool,
    /// Fields and keys of inputs and outputs that stay where they are.
    pub skip_keys: Vec<String>,
    /// Classes that use weights of the modules inside without calling these: all weights of such a
    /// module come when it is called.
    pub preload_module_classes: Vec<String>,
    /// Hooks even where the whole model is in one place.
    pub force_hooks: bool,
    /// Which device each place is.
    pub devices: DeviceTable,
    /// How weights are brought before they are needed.
    pub prefetch: Prefetch,
}

impl DispatchOptions {
    /// Chooses where weights in CPU memory or on disk are computed with.
    #[must_use]
    pub fn with_main_device(mut self, place: Placement) -> Self {
        self.main_device = Some(place);
        self
    }

    /// Chooses the folder for weights on disk.
    #[must_use]
    pub fn with_offload_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.offload_folder = Some(folder.into());
        self
    }

    /// Chooses whether persistent buffers wait elsewhere too.
    #[must_use]
    pub fn with_offload_buffers(mut self, offload_buffers: bool) -> Self {
        self.offload_buffers = offload_buffers;
        self
    }

    /// Adds a field or key that stays where it is.
    #[must_use]
    pub fn with_skip_key(mut self, key: impl Into<String>) -> Self {
        self.skip_keys.push(key.into());
        self
    }

    /// Adds a class whose modules get all of their weights at once.
    #[must_use]
    pub fn with_preload_class(mut self, class: impl Into<String>) -> Self {
        self.preload_module_classes.push(class.into());
        self
    }

    /// Chooses whether there are hooks in any case.
    #[must_use]
    pub fn with_force_hooks(mut self, force_hooks: bool) -> Self {
        self.force_hooks = force_hooks;
        self
    }

    /// Chooses which device each place is.
    #[must_use]
    pub fn with_devices(mut self, devices: DeviceTable) -> Self {
        self.devices = devices;
        self
    }

    /// Chooses how weights are brought before they are needed.
    #[must_use]
    pub fn with_prefetch(mut self, prefetch: Prefetch) -> Self {
        self.prefetch = prefetch;
        self
    }
}
