//! Gradients of several small batches are those of one large one.

use std::num::NonZeroUsize;

use accelerate::optim::{Optimizer as _, Sgd, SgdConfig};
use accelerate::tch::Kind;

use crate::failure::Failure;
use crate::perceptron::{Perceptron, samples};
use crate::probe::{Probe, values};
use crate::stage::Step;

pub(super) const STEPS: &[Step] = &[Step::new("two batches as one", two_as_one)];

const BATCH: usize = 3;
const BATCHES: usize = 2;
const SEED: i64 = 5;
const TOLERANCE: f64 = 1e-5;

fn two_as_one(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let (rank, world, device) = (probe.rank(), probe.world(), probe.device());
    let accelerator = probe.builder().build()?;
    let state = accelerator.gradient_state();
    // A launcher's own setting would win over the builder's.
    state.set_num_steps(NonZeroUsize::MIN.saturating_add(BATCHES - 1));
    let model = Perceptron::seeded(SEED, Kind::Float)?;
    let optimizer = Sgd::new(model.tensors(), SgdConfig::new(0.1))?;
    let (model, mut optimizer) = accelerator.prepare((model, optimizer))?;
    let sync = |complete: bool| {
        state.set_sync_gradients(complete);
        if let Some(parallel) = model.data_parallel() {
            parallel.set_sync_gradients(complete);
        }
    };
    let batch = |number: usize| samples(device, (number * world + rank) * BATCH, BATCH);
    let start = values(&model.values()?)?;

    sync(false);
    accelerator.backward(&model.loss(&batch(0)?)?)?;
    let local = Perceptron::seeded_on(device, SEED, Kind::Float)?;
    let loss = local.loss(&batch(0)?)?;
    loss.f_div_scalar(BATCHES as f64)?.f_backward()?;
    let (expected, found) = (local.gradients()?, model.gradients()?);
    probe.close("gradients of this rank alone", &expected, &found, TOLERANCE)?;
    optimizer.step()?;
    optimizer.zero_grad()?;
    probe.equal(
        "parameters before gradients are complete",
        &start,
        &values(&model.values()?)?,
    );
    probe.equal(
        "gradients after `zero_grad`",
        values(&found)?,
        values(&model.gradients()?)?,
    );

    sync(true);
    accelerator.backward(&model.loss(&batch(1)?)?)?;
    let alone = Perceptron::seeded_on(device, SEED, Kind::Float)?;
    let all = samples(device, 0, BATCH * BATCHES * world)?;
    alone.loss(&all)?.f_backward()?;
    probe.close(
        "gradients of one large batch",
        &alone.gradients()?,
        &model.gradients()?,
        TOLERANCE,
    )?;
    optimizer.step()?;
    let has_moved = values(&model.values()?)? != start;
    probe.equal(
        "whether the complete step moves parameters",
        true,
        has_moved,
    );
    optimizer.zero_grad()?;
    let cleared = values(&model.gradients()?)?
        .iter()
        .all(|&value| value == 0.0);
    probe.equal("whether gradients are gone after it", true, cleared);
    Ok(())
}
