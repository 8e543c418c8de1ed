//! Checkpoints in the folders that DeepSpeed writes: each rank its part of the weights and of what the
//! optimizer keeps.
//!
//! | file | what it knows |
//! | --- | --- |
//! | `engine` | a model and its optimizer as these folders have them, and whether they can |
//! | `states` | what an optimizer keeps, by group and parameter |
//! | `gather` | a rank's vectors out of shards that are cut otherwise |
//! | `save` | the files of a rank |
//! | `load` | into any plan, or none |
//!
//! The folders are the one truth: no whole file stands beside them.

mod engine;
mod gather;
mod load;
mod save;
mod states;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use accelerate_formats::zero::ModelStates;

use self::engine::{Engine, Unfit};
pub(super) use self::load::{load_model, load_optimizer};
pub(super) use self::save::plan;
use super::agreement::together;
use crate::Result;
use crate::collectives::gather_object;
use crate::optim::Optimizer;
use crate::registry::ModelHandle;
use crate::state::PartialState;

/// The file beside the folders with the name of the last one.
pub(super) const LATEST: &str = "latest";

/// The name of the folder of the `index`-th model and optimizer.
pub(super) fn tag(index: usize) -> String {
    match index {
        0 => "pytorch_model".to_owned(),
        _ => format!("pytorch_model_{index}"),
    }
}

/// The folder of the `index`-th model and optimizer in a saved state, if it has one.
pub(super) fn folder_in(state: &Path, index: usize) -> Option<PathBuf> {
    let folder = state.join(tag(index));
    let mut names = [2, 3].map(|stage| ModelStates::file(stage, 0)).into_iter();
    names
        .any(|name| folder.join(name).exists())
        .then_some(folder)
}

/// What goes into such folders: every model with its optimizer, where a plan asks for it and all of
/// them can.
///
/// # Collective
/// Every rank calls this.
pub(super) fn engines(
    models: &[Rc<ModelHandle>],
    optimizers: &[Rc<RefCell<dyn Optimizer>>],
    state: &PartialState,
) -> Result<Option<Vec<Engine>>> {
    let asks = models
        .iter()
        .filter_map(|model| model.gradients().sharded())
        .any(|sharded| sharded.saves_as_deepspeed());
    if !asks {
        return Ok(None);
    }
    let own = match pairs(models, optimizers) {
        Ok(engines) => Ok(Ok(engines)),
        Err(Unfit::Because(reason)) => Ok(Err(reason)),
        Err(Unfit::Failed(error)) => Err(error),
    };
    let own = together(state, own)?;
    let reasons = gather_object(state, vec![own.as_ref().err().cloned()])?;
    let reason = reasons.into_iter().flatten().next();
    if let Some(reason) = reason {
        tracing::warn!(
            "the state is saved in whole files, and not in folders of DeepSpeed's: {reason}"
        );
        return Ok(None);
    }
    Ok(own.ok())
}

/// Each model with the optimizer at its place.
fn pairs(
    models: &[Rc<ModelHandle>],
    optimizers: &[Rc<RefCell<dyn Optimizer>>],
) -> std::result::Result<Vec<Engine>, Unfit> {
    if models.len() != optimizers.len() {
        return Err(Unfit::Because(format!(
            "expected an optimizer for each model, found {} and {}",
            optimizers.len(),
            models.len()
        )));
    }
    let pairs = models.iter().zip(optimizers);
    pairs
        .map(|(model, optimizer)| Engine::new(model, optimizer))
        .collect()
}
