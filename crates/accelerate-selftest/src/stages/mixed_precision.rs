//! Forward passes in half the bits, beside parameters and gradients in float32.

use accelerate::data::DataLoader;
use accelerate::optim::{Optimizer, Sgd, SgdConfig};
use accelerate::precision::{GradScalerKwargs, MixedPrecision};
use accelerate::tch::{Kind, Tensor};
use accelerate::{Accelerator, collectives};

use crate::failure::Failure;
use crate::perceptron::{Perceptron, samples};
use crate::probe::{Probe, values};
use crate::stage::Step;

pub(super) const STEPS: &[Step] = &[
    Step::new("types under bfloat16", types),
    Step::new("training under bfloat16", bfloat16),
    Step::new("training under float16", float16),
    Step::new("overflow on one rank", overflow),
];

const BATCH: usize = 4;
const TRAINED: usize = 5;
const SEED: i64 = 3;
const RATE: f64 = 0.05;
const SCALE: f64 = 1024.0;

fn accelerator(probe: &Probe<'_>, precision: MixedPrecision) -> Result<Accelerator, Failure> {
    let scaler = GradScalerKwargs {
        init_scale: SCALE,
        ..GradScalerKwargs::default()
    };
    Ok(probe
        .builder()
        .mixed_precision(precision)
        .fp16_on_cpu(true)
        .grad_scaler_kwargs(scaler)
        .build()?)
}

/// Inside of autocast products are small; outside of it, and as outputs, they are not.
fn types(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let accelerator = accelerator(probe, MixedPrecision::Bf16)?;
    let one = Tensor::f_ones([2, 2], (Kind::Float, probe.device()))?;
    {
        let _cast = accelerator.autocast()?;
        let found = one.f_matmul(&one)?.f_kind()?;
        probe.equal("type of a product in autocast", Kind::BFloat16, found);
    }
    let found = one.f_matmul(&one)?.f_kind()?;
    probe.equal("type of a product after autocast", Kind::Float, found);
    let model = accelerator.prepare(Perceptron::seeded(SEED, Kind::Float)?)?;
    let loss = model.loss(&samples(probe.device(), 0, BATCH)?)?;
    probe.equal("type of a loss", Kind::Float, loss.f_kind()?);
    accelerator.backward(&loss)?;
    for parameter in model.tensors() {
        let gradient = parameter.f_grad()?.f_kind()?;
        probe.equal("type of a gradient", Kind::Float, gradient);
    }
    Ok(())
}

fn bfloat16(probe: &mut Probe<'_>) -> Result<(), Failure> {
    learns_like_float32(probe, MixedPrecision::Bf16, 2e-2)
}

fn float16(probe: &mut Probe<'_>) -> Result<(), Failure> {
    learns_like_float32(probe, MixedPrecision::Fp16, 5e-3)
}

/// All ranks together come near what one process learns in float32.
fn learns_like_float32(
    probe: &mut Probe<'_>,
    precision: MixedPrecision,
    tolerance: f64,
) -> Result<(), Failure> {
    let (world, device) = (probe.world(), probe.device());
    let accelerator = accelerator(probe, precision)?;
    let model = Perceptron::seeded(SEED, Kind::Float)?;
    let optimizer = Sgd::new(model.tensors(), SgdConfig::new(RATE))?;
    let numbers: Vec<i64> = (0..).take(BATCH * world * TRAINED).collect();
    let loader = DataLoader::builder(numbers).batch_size(BATCH).build()?;
    let (model, mut optimizer, loader) = accelerator.prepare((model, optimizer, loader))?;
    let start = values(&model.values()?)?;

    let alone = Perceptron::seeded_on(device, SEED, Kind::Float)?;
    let mut lonely = Sgd::new(alone.tensors(), SgdConfig::new(RATE))?;
    for (step, batch) in loader.iter().enumerate() {
        accelerator.backward(&model.loss(&batch?)?)?;
        optimizer.step()?;
        probe.equal(
            "whether a step was skipped",
            false,
            optimizer.step_was_skipped(),
        );
        optimizer.zero_grad()?;
        let all = samples(device, step * BATCH * world, BATCH * world)?;
        alone.loss(&all)?.f_backward()?;
        lonely.step()?;
        lonely.zero_grad()?;
    }
    let trained = model.values()?;
    probe.close(
        "parameters of float32",
        &alone.values()?,
        &trained,
        tolerance,
    )?;
    let moves = values(&trained)? != start;
    probe.equal("whether training moves parameters", true, moves);
    same_on_all_ranks(probe, trained)
}

/// Every rank leaves the step out, and the scale falls on all of them.
fn overflow(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let accelerator = accelerator(probe, MixedPrecision::Fp16)?;
    let model = Perceptron::seeded(SEED, Kind::Float)?;
    let optimizer = Sgd::new(model.tensors(), SgdConfig::new(RATE))?;
    let (model, mut optimizer) = accelerator.prepare((model, optimizer))?;
    let before = values(&model.values()?)?;
    let is_last = probe.rank() + 1 == probe.world();
    let factor = if is_last { f64::INFINITY } else { 1.0 };
    let loss = model.loss(&samples(probe.device(), 0, BATCH)?)?;
    accelerator.backward(&loss.f_mul_scalar(factor)?)?;
    optimizer.step()?;
    optimizer.zero_grad()?;
    probe.equal(
        "whether the step was skipped",
        true,
        optimizer.step_was_skipped(),
    );
    probe.holds("parameters after a skipped step", &before, &model.values()?)?;
    let scale = accelerator.scaler().map(|scaler| scaler.scale_value());
    probe.equal("loss scale", Some(SCALE / 2.0), scale.transpose()?);
    let loss = model.loss(&samples(probe.device(), 0, BATCH)?)?;
    accelerator.backward(&loss)?;
    optimizer.step()?;
    probe.equal(
        "whether the next step was skipped",
        false,
        optimizer.step_was_skipped(),
    );
    same_on_all_ranks(probe, model.values()?)
}

fn same_on_all_ranks(probe: &mut Probe<'_>, own: Tensor) -> Result<(), Failure> {
    let length = own.numel();
    let all = values(&collectives::gather(probe.accelerator.state(), own)?)?;
    let first = all.get(..length).unwrap_or_default();
    for (rank, theirs) in all.chunks(length).enumerate() {
        let what = format!("parameters of rank 0 on rank {rank}");
        probe.equal(what, first, theirs);
    }
    Ok(())
}
