//! Which part of a model that is larger than one device is where, found from sizes alone.
//!
//! A [`ModuleShape`] says what a model consists of, [`MaxMemory`] how much each place may hold, and
//! [`infer_auto_device_map`] fills the places in order: accelerators, CPU memory, disk. Nothing here
//! needs a device, so a map for any machine can be made on any other one.
//!
//! | part | type or function |
//! | --- | --- |
//! | a place | [`Placement`] |
//! | names and their places | [`DeviceMap`] |
//! | bytes of each module and tensor | [`compute_module_sizes`], [`ModuleSizes`] |
//! | what must fit in one piece | [`get_max_layer_size`], [`calculate_maximum_sizes`] |
//! | tensors with two names | [`find_tied_parameters`] |
//! | limits that spread a model evenly | [`get_balanced_memory`] |
//! | the map | [`infer_auto_device_map`], [`Inferred`] |
//! | why it is so | [`Explanation`] |
//!
//! # Source
//! The functions of the same names. Names and rules are the original's; where its answer would leave
//! a tensor without a place, put tied weights on two devices, or exceed a limit, this differs, and
//! each function says how.

mod balance;
mod clean;
mod element_type;
mod error;
mod explanation;
mod fallback;
mod fill;
mod inferred;
mod largest;
mod map;
mod max_memory;
mod memory_size;
mod mode;
mod options;
mod placement;
mod queue;
mod shape;
mod sizes;
mod tied;

pub use balance::{Balance, get_balanced_memory};
pub use clean::clean_device_map;
pub use element_type::ElementType;
pub use error::{DeviceMapError, UnknownName};
pub use explanation::{Explanation, Step, Whole};
pub use fill::infer_auto_device_map;
pub use inferred::{BufferWarning, Inferred};
pub use largest::{LargestLayer, calculate_maximum_sizes, get_max_layer_size};
pub use map::DeviceMap;
pub use max_memory::MaxMemory;
pub use memory_size::MemorySize;
pub use mode::Mode;
pub use options::InferOptions;
pub use placement::Placement;
pub use shape::{ModuleShape, TensorShape};
pub use sizes::{ModuleSizes, compute_module_sizes, compute_module_total_buffer_size};
pub use tied::find_tied_parameters;

#[cfg(test)]
mod tests;
