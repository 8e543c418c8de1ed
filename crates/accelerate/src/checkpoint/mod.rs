//! Weights of a module from and to files, and the state of a whole training.
//!
//! [`load_weights`] compares the whole file with the whole module before it copies anything, and
//! names everything that does not fit at once. [`save_weights`] writes a file that other tools
//! read; it is whole or absent. [`load_state_dict`] and [`state_dict`] do the same in memory.
//!
//! [`Accelerator::save_state`](crate::Accelerator::save_state) writes one folder with everything
//! that training depends on; a [`Manifest`] tells a whole folder from a broken one.

mod compare;
mod dtype;
mod files;
mod folder;
mod gradient_order;
mod gradients;
mod load;
mod manifest;
mod project;
mod random_state;
mod registry;
mod report;
mod resume;
mod save;
mod state_dict;
mod torch_state;
mod training_state;
mod wrappers;

pub use accelerate_formats::{AtomicFile, Dict, Metadata, Value, Weights};

pub use self::dtype::{dtype_of, kind_of};
pub use self::load::{LoadOptions, load_weights};
pub use self::manifest::{
    CheckpointFault, MANIFEST_FILE, Manifest, ManifestFile, SkippedCheckpoint, Verify,
};
pub use self::project::ProjectConfiguration;
pub use self::registry::Checkpointable;
pub use self::report::{LoadReport, Mismatch, TensorType};
pub use self::resume::LoadedState;
pub use self::save::save_weights;
pub use self::state_dict::{StateDict, load_state_dict, state_dict};

pub(crate) use self::project::Project;
pub(crate) use self::registry::{ModelHandle, Registry};
pub(crate) use self::training_state::TrainingState;

#[cfg(test)]
mod tests;
