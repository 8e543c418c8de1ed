//! The state of a whole training comes back: weights, moments, random numbers, all of it.

use std::path::PathBuf;
use std::time::Duration;

use accelerate::optim::Optimizer as _;
use accelerate::tch::{Device, Kind, Tensor};

use super::checkpoint::Training;
use crate::failure::Failure;
use crate::probe::{Probe, values};
use crate::stage::Step;

pub(super) const STEPS: &[Step] = &[Step::new("save, end and resume", resume)];

/// How long rank 0 may take to make a folder.
const FOLDER: Duration = Duration::from_secs(30);
const SAVED_AT: usize = 3;

/// A job that loads what another saved takes the same next step and draws the same numbers.
fn resume(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let key = "checkpoint_state/folder";
    let folder = match probe.accelerator.is_main_process() {
        true => {
            let folder = tempfile::tempdir()?;
            probe.board.post(key, &folder.path())?;
            Some(folder)
        }
        false => None,
    };
    let path: PathBuf = probe.board.read(key, 0, FOLDER)?;
    let sees = i64::from(path.exists());
    if probe.of_all_ranks(&[sees])?.concat().contains(&0) {
        probe.note("ranks do not share the folder for temporary files, so nothing was saved there");
        probe.equal(
            "rank 0 sees its own folder",
            true,
            sees == 1 || probe.rank() != 0,
        );
        return Ok(());
    }
    let checkpoint = path.join("checkpoint");
    let (expected, expected_draws) = {
        let accelerator = probe.builder().build()?;
        let mut running = Training::begin(&accelerator, 3)?;
        for step in 0..SAVED_AT {
            running.step(probe, &accelerator, step)?;
        }
        accelerator.save_state(Some(&checkpoint))?;
        running.step(probe, &accelerator, SAVED_AT)?;
        (running.model.values()?, draws()?)
    };
    let accelerator = probe.builder().build()?;
    let mut resumed = Training::begin(&accelerator, 4)?;
    let loaded = accelerator.load_state(Some(&checkpoint))?;
    probe.equal(
        "what could not be restored",
        Vec::<String>::new(),
        loaded.warnings,
    );
    resumed.step(probe, &accelerator, SAVED_AT)?;
    let steps = resumed.optimizer.learning_rates().step_count();
    probe.equal("steps of the optimizer", SAVED_AT as u64 + 1, steps);
    probe.equal("random numbers", expected_draws, draws()?);
    // A first step sums over more than two ranks in another order.
    let tolerance = if probe.world() > 2 { 1e-6 } else { 0.0 };
    let found = resumed.model.values()?;
    probe.close(
        "parameters after the next step",
        &expected,
        &found,
        tolerance,
    )?;
    accelerator.wait_for_everyone()?;
    drop(folder);
    Ok(())
}

fn draws() -> Result<Vec<f64>, Failure> {
    values(&Tensor::f_rand([4], (Kind::Float, Device::Cpu))?)
}
