//! What is saved comes back, and training goes on from it as if nothing had been.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use accelerate::Accelerator;
use accelerate::PreparedModel;
use accelerate::checkpoint::{LoadOptions, load_weights, save_weights};
use accelerate::optim::{AcceleratedOptimizer, AdamW, AdamWConfig, Optimizer as _};
use accelerate::tch::Kind;
use accelerate_formats::{Metadata, Weights};

use crate::failure::Failure;
use crate::perceptron::{Perceptron, samples};
use crate::probe::{Probe, values};
use crate::stage::Step;

pub(super) const STEPS: &[Step] = &[
    Step::new("save and load", save_and_load),
    Step::new("one writer, all read", one_writer),
    Step::new("resume", resume),
];

const BATCH: usize = 4;
const FILE: &str = "model.safetensors";
/// How long rank 0 may take to make a folder.
const FOLDER: Duration = Duration::from_secs(30);

/// Every rank by itself, in every type that a model may have.
fn save_and_load(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    for kind in [Kind::Float, Kind::BFloat16, Kind::Half] {
        let path = folder.path().join(format!("{kind:?}.safetensors"));
        let saved = Perceptron::seeded_on(probe.device(), 3, kind)?;
        save_weights(&saved, &path, &Metadata::new())?;
        comes_back(probe, &format!("weights in {kind:?}"), &saved, &path, kind)?;
    }
    Ok(())
}

fn comes_back(
    probe: &mut Probe<'_>,
    what: &str,
    saved: &Perceptron,
    path: &Path,
    kind: Kind,
) -> Result<(), Failure> {
    let loaded = Perceptron::seeded_on(probe.device(), 4, kind)?;
    load(&loaded, path)?;
    probe.equal(what, values(&saved.values()?)?, values(&loaded.values()?)?);
    Ok(())
}

fn load(model: &Perceptron, path: &Path) -> Result<(), Failure> {
    let weights = Weights::open(path).map_err(accelerate::Error::from)?;
    load_weights(model, &weights, &LoadOptions::strict())?;
    Ok(())
}

/// Rank 0 writes; whoever sees its file system reads.
fn one_writer(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let model = Perceptron::seeded_on(probe.device(), 3, Kind::Float)?;
    let key = "checkpoint/folder";
    let folder = match probe.accelerator.is_main_process() {
        true => {
            let folder = tempfile::tempdir()?;
            save_weights(&model, folder.path().join(FILE), &Metadata::new())?;
            probe.board.post(key, &folder.path())?;
            Some(folder)
        }
        false => None,
    };
    probe.accelerator.wait_for_everyone()?;
    let path: PathBuf = probe.board.read(key, 0, FOLDER)?;
    let path = path.join(FILE);
    if path.exists() {
        comes_back(probe, "weights of rank 0", &model, &path, Kind::Float)?;
    } else {
        probe.note(format!(
            "rank {} does not see the folder for temporary files of rank 0",
            probe.rank()
        ));
    }
    probe.accelerator.wait_for_everyone()?;
    drop(folder);
    Ok(())
}

/// A model and optimizer that were saved after three steps, and loaded into fresh ones, take the same
/// fourth step.
fn resume(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let accelerator = probe.builder().build()?;
    accelerator
        .gradient_state()
        .set_num_steps(NonZeroUsize::MIN);
    let mut running = Training::begin(&accelerator, 3)?;
    for step in 0..3 {
        running.step(probe, &accelerator, step)?;
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(FILE);
    save_weights(&*running.model, &path, &Metadata::new())?;
    let state = running.optimizer.state_dict()?;

    let mut resumed = Training::begin(&accelerator, 4)?;
    load(&resumed.model, &path)?;
    resumed.optimizer.load_state_dict(&state)?;
    drop(state);
    for training in [&mut running, &mut resumed] {
        training.step(probe, &accelerator, 3)?;
    }
    // In its first step a model sends its gradients in another order than later, and a sum of
    // more than two depends on the place in what is sent.
    let tolerance = if probe.world() > 2 { 1e-6 } else { 0.0 };
    let (expected, found) = (running.model.values()?, resumed.model.values()?);
    probe.close(
        "parameters after the next step",
        &expected,
        &found,
        tolerance,
    )
}

pub(super) struct Training {
    pub(super) model: PreparedModel<Perceptron>,
    pub(super) optimizer: AcceleratedOptimizer<AdamW>,
}

impl Training {
    pub(super) fn begin(accelerator: &Accelerator, seed: i64) -> Result<Self, Failure> {
        let model = Perceptron::seeded(seed, Kind::Float)?;
        let config = AdamWConfig {
            lr: 0.01,
            ..AdamWConfig::default()
        };
        let optimizer = AdamW::new(model.tensors(), config)?;
        let (model, optimizer) = accelerator.prepare((model, optimizer))?;
        Ok(Self { model, optimizer })
    }

    pub(super) fn step(
        &mut self,
        probe: &Probe<'_>,
        accelerator: &Accelerator,
        step: usize,
    ) -> Result<(), Failure> {
        let first = (step * probe.world() + probe.rank()) * BATCH;
        let loss = self.model.loss(&samples(probe.device(), first, BATCH)?)?;
        accelerator.backward(&loss)?;
        self.optimizer.step()?;
        Ok(self.optimizer.zero_grad()?)
    }
}
