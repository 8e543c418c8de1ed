//! A checkpoint that only rank 0 reads.

use std::path::Path;

use accelerate_torch::{meta, storage};
use serde::{Deserialize, Serialize};
use tch::Tensor;

use super::load::{LoadedCheckpoint, own_device, targets, wanted_kind};
use super::load_options::LoadCheckpointOptions;
use super::source::{Source, Wanted};
use super::weights::OffloadedWeights;
use crate::checkpoint::{LoadReport, Paired, pair_weights, together};
use crate::collectives::{broadcast, broadcast_object_list};
use crate::nn::Module;
use crate::state::PartialState;
use crate::{Error, Result};

/// What rank 0 tells the others of its report.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Outcome {
    /// The names of the model that values come for, in the order in which they come.
    names: Vec<String>,
    missing: Vec<String>,
    unexpected: Vec<String>,
    newly_initialized: Vec<String>,
    ignored: Vec<String>,
}

/// As `load`, with values that rank 0 reads and sends.
pub(super) fn load_from_rank_0(
    model: &dyn Module,
    checkpoint: &Path,
    options: &LoadCheckpointOptions<'_>,
    state: &PartialState,
) -> Result<LoadedCheckpoint> {
    if options.device_map.is_some() {
        return Err(Error::Argument {
            operation: "load_checkpoint_in_model",
            expected: "no device map where rank 0 sends the values".to_owned(),
            found: "both `device_map` and `broadcast_from_rank0`".to_owned(),
        });
    }
    let targets = targets(model);
    let read = match state.process_index() {
        0 => read(model, checkpoint, options).map(Some),
        _ => Ok(None),
    };
    let mut paired = together(state, read)?;
    let name_of = |pair: &Paired| {
        let target = targets.get(&storage::identity(&pair.target));
        target.and_then(|target| target.names.first().cloned())
    };
    let mut outcome = Outcome::default();
    if let Some((report, paired)) = &paired {
        outcome.names = paired.iter().filter_map(name_of).collect();
        outcome.missing = report.missing.clone();
        outcome.unexpected = report.unexpected.clone();
        outcome.newly_initialized = report.newly_initialized.clone();
        outcome.ignored = report.ignored.clone();
    }
    let mut told = vec![outcome];
    broadcast_object_list(state, &mut told, 0)?;
    let outcome = told.pop().unwrap_or_default();
    let mut sent = paired.take().map(|(_, paired)| paired.into_iter());
    for name in &outcome.names {
        let pair = sent.as_mut().and_then(Iterator::next);
        receive(model, name, pair.as_ref(), options, state)?;
    }
    let report = LoadReport {
        loaded: outcome.names.len(),
        missing: outcome.missing,
        unexpected: outcome.unexpected,
        newly_initialized: outcome.newly_initialized,
        ignored: outcome.ignored,
        ..LoadReport::default()
    };
    Ok(LoadedCheckpoint {
        report,
        on_disk: OffloadedWeights::new(),
    })
}

fn read(
    model: &dyn Module,
    checkpoint: &Path,
    options: &LoadCheckpointOptions<'_>,
) -> Result<(LoadReport, Vec<Paired>)> {
    let weights = accelerate_formats::Weights::open(checkpoint)?;
    pair_weights(model, &weights, &options.fit)
}

/// One tensor on every rank: rank 0 has it, the others get it.
fn receive(
    model: &dyn Module,
    name: &str,
    pair: Option<&Paired>,
    options: &LoadCheckpointOptions<'_>,
    state: &PartialState,
) -> Result<()> {
    let target = handle(model, name)?;
    let device = match meta::is_meta(&target)? {
        true => own_device(model)?,
        false => target.device(),
    };
    let kind = wanted_kind(options, name, &target)?;
    let values = match pair {
        Some(pair) => {
            let source = Source::File(pair.stored.clone());
            source.copied(name, Wanted { kind, device })
        }
        None => Tensor::f_empty(target.size(), (kind, device)).map_err(Error::from),
    };
    // A rank that cannot send or take it must not leave the others waiting.
    let values = broadcast(state, together(state, values)?, 0)?;
    storage::replace(&target, &values)?;
    Ok(())
}

fn handle(model: &dyn Module, name: &str) -> Result<Tensor> {
    let parameter = model.get_parameter(name).map(|found| found.tensor());
    match parameter {
        Ok(tensor) => Ok(tensor.shallow_clone()),
        Err(error) => match model.get_buffer(name) {
            Ok(buffer) => Ok(buffer.tensor().shallow_clone()),
            Err(_) => Err(error),
        },
    }
}
