//! One training program for one CPU, many GPUs or many machines.
#![forbid(unsafe_code)]

// The derive macros name this crate by its public path.
extern crate self as accelerate;

pub mod accelerator;
pub mod accumulation;
pub mod big_model;
pub mod checkpoint;
pub mod collectives;
pub mod data;
mod error;
mod gradient_clipping;
mod gradient_state;
pub mod launchers;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod nn;
mod offload;
pub mod optim;
pub mod parallel;
pub mod precision;
pub mod profile;
pub mod random;
mod recording;
mod registry;
pub mod state;
pub mod tracking;
pub mod tree;

pub use accelerator::{Accelerator, AcceleratorBuilder, DataLoaderConfiguration, PreparedModel};
pub use error::{Error, Result};
pub use gradient_clipping::{ClipNorm, clip_grad_norm, clip_grad_value};
pub use gradient_state::GradientState;
pub use state::{DistributedType, PartialState};
// Maps in order of insertion are part of this library's interface too.
pub use indexmap;
// Tensors are part of this library's interface: this is the one version they come from.
pub use tch;
