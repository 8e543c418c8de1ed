//! Models that are larger than a device or than memory, and still compute.
//!
//! Build the model without memory ([`init_empty_weights`](crate::nn::init_empty_weights)), then
//! [`load_checkpoint_and_dispatch`]: a [`DeviceMap`] says which part goes to which accelerator, stays
//! in CPU memory, or on disk; hooks bring weights and inputs together when a module is called, and the
//! next blocks are on their way meanwhile. The model itself knows nothing of it.
//!
//! | part | room for |
//! | --- | --- |
//! | [`module_shape`] | what a map has to know of a model |
//! | [`DeviceTable`] | which device each place of a map is, or pretends to be |
//! | [`load_checkpoint_in_model`] | weights straight from files to their places |
//! | [`dispatch_model`], [`cpu_offload`], [`disk_offload`] | hooks that bring weights and take them away |
//! | [`AlignDevicesHook`] | the hook itself |
//! | [`Prefetch`] | weights that come before they are needed |
//! | [`cpu_offload_with_hook`] | whole models that share a device in turn |
//! | [`align_module_device`] | weights of a module at hand for a while |
//! | [`attach_layerwise_casting_hooks`] | weights in a small type |
//! | [`get_state_dict_offloaded_model`] | all weights, wherever they are |
//!
//! Maps are made from sizes alone, in [`accelerate_plan::device_map`].

mod align_hook;
mod align_module;
mod blocks;
mod broadcast;
mod devices;
mod disk;
mod dispatch;
mod dispatched;
mod layerwise_casting;
mod load;
mod load_and_dispatch;
mod load_options;
mod options;
mod order;
mod pipeline;
mod plan;
mod prefetch;
mod private_map;
mod settle;
mod shape;
mod slot;
mod source;
mod spread;
mod state;
mod user_hook;
mod weights;
mod worker;

pub use accelerate_plan::device_map::{
    self, DeviceMap, DeviceMapError, InferOptions, Inferred, MaxMemory, Mode, ModuleShape,
    Placement, infer_auto_device_map,
};

pub use self::align_hook::{AlignDevicesHook, has_offloaded_params};
pub use self::align_module::align_module_device;
pub use self::devices::DeviceTable;
pub use self::dispatch::{cpu_offload, disk_offload, dispatch_model};
pub use self::dispatched::{device_map_of, remove_hooks};
pub use self::layerwise_casting::{LayerwiseCasting, attach_layerwise_casting_hooks};
pub use self::load::{LoadedCheckpoint, load_checkpoint_in_model};
pub use self::load_and_dispatch::{
    LoadAndDispatchOptions, LoadedAndDispatched, MapChoice, detected_memory,
    load_checkpoint_and_dispatch,
};
pub use self::load_options::LoadCheckpointOptions;
pub use self::options::DispatchOptions;
pub use self::prefetch::{AfterUse, Prefetch};
pub use self::shape::{element_type_of, module_shape};
pub use self::state::get_state_dict_offloaded_model;
pub use self::user_hook::{UserCpuOffloadHook, cpu_offload_with_hook};
pub use self::weights::OffloadedWeights;

pub(crate) use self::dispatched::{check_trainable, is_offloaded};
