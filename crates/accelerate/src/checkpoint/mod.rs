//! Weights of a module from and to files, and the state of a whole training.
//!
//! [`load_weights`] compares the whole file with the whole module before it copies anything, and
//! names everything that does not fit at once. [`save_weights`] writes a file that other tools
//! read; it is whole or absent. [`load_state_dict`] and [`state_dict`] do the same in memory.
//!
//! [`Accelerator::save_state`](crate::Accelerator::save_state) writes one folder with everything
//! that training depends on; a [`Manifest`] tells a whole folder from a broken one.

mod agreement;
mod background;
mod checkpointable;
mod comm_hooks;
mod compare;
mod copies;
mod deepspeed;
mod distributed;
mod distributed_optimizer;
mod dtype;
mod files;
mod folder;
mod gradient_order;
mod gradients;
mod hashed_file;
mod load;
mod load_shards;
mod manifest;
mod options;
mod placing;
mod planned_file;
mod project;
mod random_state;
mod report;
mod resume;
mod save;
mod save_model;
mod sharing;
mod state_dict;
mod state_hooks;
mod torch_state;
mod training_state;
mod weight_set;
mod wrappers;

pub use accelerate_formats::manifest::{
    CheckpointFault, MANIFEST_FILE, Manifest, ManifestFile, Verify,
};
pub use accelerate_formats::{AtomicFile, Dict, Metadata, ShardSize, Value, Weights};

pub use self::background::BackgroundSave;
pub use self::checkpointable::Checkpointable;
pub use self::dtype::{dtype_of, kind_of};
pub use self::load::{LoadOptions, load_weights};
pub use self::manifest::SkippedCheckpoint;
pub use self::options::{SaveStateOptions, WhileSaving};
pub use self::project::ProjectConfiguration;
pub use self::report::{LoadReport, Mismatch, TensorType};
pub use self::resume::LoadedState;
pub use self::save::save_weights;
pub use self::save_model::{SaveModelOptions, load_checkpoint_in_model, save_model};
pub use self::state_dict::{StateDict, load_state_dict, state_dict};
pub use self::state_hooks::{
    LoadingModel, LoadingState, SavingModel, SavingState, StateHookHandle,
};

pub(crate) use self::agreement::together;
pub(crate) use self::background::BackgroundSaves;
pub(crate) use self::load::{Paired, pair_weights, stored_type, stored_values};
pub(crate) use self::load_shards::load_shards;
pub(crate) use self::project::Project;
pub(crate) use self::save_model::save_weights_of;
pub(crate) use self::state_hooks::StateHooks;
pub(crate) use self::training_state::TrainingState;
pub(crate) use self::weight_set::with_plain_bytes;

#[cfg(test)]
mod tests;
