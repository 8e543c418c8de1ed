//! Stages of a model on real ranks, against the same model on one.

use std::num::NonZeroUsize;

use accelerate::nn::{
    Activation, ActivationFunction, Factory, Forward, Linear, Module, Sequential, SequentialOf,
};
use accelerate::parallel::{PipelineOptions, Pipelined, PipelinedModel};
use accelerate::tree::slice_tensors;
use accelerate::{Accelerator, Error, Result};
use accelerate_testkit::{Rank, ranks};
use tch::{Device, Kind, Tensor};

const WIDTHS: [i64; 7] = [5, 64, 7, 33, 48, 6, 3];

/// Layers of different sizes, the same on every rank.
fn model() -> Result<Sequential> {
    tch::manual_seed(3);
    let mut model = Sequential::new();
    for pair in WIDTHS.windows(2) {
        model = model
            .with(Linear::new(pair[0], pair[1], &Factory::default())?)
            .with(Activation::new(ActivationFunction::Gelu));
    }
    Ok(model)
}

fn batch(rows: i64) -> Result<Tensor> {
    let values = Tensor::f_arange(rows * WIDTHS[0], (Kind::Float, Device::Cpu))?;
    Ok((values * 0.1).sin().f_view([rows, WIDTHS[0]])?)
}

/// The outputs of the whole model for the parts that a pipeline cuts a batch into.
fn plain(model: &Sequential, batch: &Tensor, chunks: i64) -> Result<Tensor> {
    let rows = batch.size()[0];
    let chunks = chunks.min(rows).max(1);
    let mut outputs = Vec::new();
    let mut start = 0;
    for chunk in 0..chunks {
        let length = rows / chunks + i64::from(chunk < rows % chunks);
        let part = slice_tensors(batch.shallow_clone(), start..start + length)?;
        outputs.push(tch::no_grad(|| model.call(part))?);
        start += length;
    }
    Ok(Tensor::f_cat(&outputs, 0)?)
}

fn count(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

fn check_rows(
    rank: Rank,
    pipeline: &PipelinedModel<Sequential>,
    chunks: i64,
    all: bool,
) -> Result<()> {
    let whole = model()?;
    whole.train(false);
    for rows in [4, 7, 1, 2, 0, 7] {
        let batch = batch(rows)?;
        let output = match rank.index() {
            0 => pipeline.call(&batch)?,
            1 => pipeline.call_without_input()?,
            // What others give is not used.
            _ => pipeline.call(Tensor::from(0.0))?,
        };
        assert_eq!(output.is_some(), all || rank.index() + 1 == rank.world());
        let Some(output) = output else { continue };
        assert_eq!(output, plain(&whole, &batch, chunks)?, "{rows} rows");
        assert!(output.allclose(&tch::no_grad(|| whole.call(&batch))?, 1e-5, 1e-6, false));
        assert!(!output.requires_grad());
    }
    Ok(())
}

fn accelerator() -> Result<Accelerator> {
    tch::set_num_threads(1);
    Accelerator::builder().cpu(true).build()
}

/// Every rank has memory for its own stage, and for nothing else.
fn check_memory(pipeline: &PipelinedModel<Sequential>) -> Result<()> {
    let own = pipeline.own_steps();
    assert!(!own.is_empty());
    for (name, parameter) in pipeline.model().named_parameters() {
        let is_own = own
            .iter()
            .any(|step| name.starts_with(&format!("{}.", step.name())));
        assert_eq!(parameter.is_meta()?, !is_own, "{name}");
    }
    Ok(())
}

#[test]
fn a_model_in_stages_computes_what_the_whole_model_does() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let accelerator = accelerator()?;
        let world = rank.world();
        let cut = PipelineOptions::default();
        let pipeline = accelerator.prepare_pipeline(model()?, &cut)?;
        check_memory(&pipeline)?;
        assert_eq!(pipeline.split_points().len(), world - 1);
        check_rows(rank, &pipeline, world as i64, false)?;

        let points = ["3", "8"].into_iter().take(world - 1);
        let cut = cut
            .split_before(points)
            .num_chunks(count(4))
            .gather_output(true);
        let pipeline = accelerator.prepare_pipeline(model()?, &cut)?;
        assert_eq!(pipeline.split_points(), ["3", "8"][..world - 1]);
        check_rows(rank, &pipeline, 4, true)?;

        // One part: one rank after the other.
        tch::manual_seed(5);
        let layers = (0..4).map(|_| Linear::new(6, 6, &Factory::default()));
        let whole: SequentialOf<Linear> = layers.collect::<Result<_>>()?;
        let cut = PipelineOptions::default()
            .num_chunks(count(1))
            .gather_output(true);
        let values = Tensor::f_ones([3, 6], (Kind::Float, Device::Cpu))?;
        let expected = tch::no_grad(|| whole.call(&values))?;
        let pipeline = accelerator.prepare_pipeline(whole, &cut)?;
        assert_eq!(pipeline.call(&values)?, Some(expected));
        bad_input(rank, &accelerator)?;
        accelerator.wait_for_everyone()?;
        failing_step(rank, &accelerator)
    });
}

/// What cannot be cut is told on every rank, and nobody waits.
fn bad_input(rank: Rank, accelerator: &Accelerator) -> Result<()> {
    let cut = PipelineOptions::default().split_before(["nowhere"]);
    let cut = match rank.world() {
        2 => cut,
        _ => PipelineOptions::default().split_before(["1", "nowhere"]),
    };
    let error = accelerator.prepare_pipeline(model()?, &cut).unwrap_err();
    assert!(
        error.to_string().contains("has no step `nowhere`"),
        "{error}"
    );
    let own = if rank.index() == 0 { "1" } else { "2" };
    let points = [own, "9"].into_iter().take(rank.world() - 1);
    let cut = PipelineOptions::default().split_before(points);
    let error = accelerator.prepare_pipeline(model()?, &cut).unwrap_err();
    assert!(
        matches!(error, Error::ModelsDiffer { rank: 1, .. }),
        "{error}"
    );
    Ok(())
}

/// A layer that takes other widths than the one before gives.
fn failing_step(rank: Rank, accelerator: &Accelerator) -> Result<()> {
    let factory = Factory::default();
    let mut model = Sequential::new();
    for width in 0..rank.world() as i64 {
        // Only the last rank's does not fit.
        let inputs = if width + 1 == rank.world() as i64 {
            9
        } else {
            4
        };
        model = model.with(Linear::new(inputs, 4, &factory)?);
    }
    assert_eq!(model.steps().len(), rank.world());
    let last = rank.world() - 1;
    let points: Vec<String> = (1..=last).map(|step| step.to_string()).collect();
    let cut = PipelineOptions::default()
        .split_before(points)
        .gather_output(true);
    let pipeline = accelerator.prepare_pipeline(model, &cut)?;
    let values = Tensor::f_ones([5, 4], (Kind::Float, Device::Cpu))?;
    let error = pipeline.call(&values).unwrap_err();
    if rank.index() == last {
        let step = last.to_string();
        assert!(
            matches!(&error, Error::PipelineStep { step: found, .. } if *found == step),
            "{error}"
        );
    } else {
        assert!(
            matches!(error, Error::OtherRankFailed { rank } if rank == last),
            "{error}"
        );
    }
    let error = pipeline.call(&values).unwrap_err();
    assert!(
        matches!(error, Error::PipelineBroken { rank } if rank == last),
        "{error}"
    );
    accelerator.wait_for_everyone()
}

#[test]
fn a_rank_that_ends_is_named_to_the_others() {
    ranks(&[3], |rank| -> Result<()> {
        let accelerator = accelerator()?;
        let cut = PipelineOptions::default();
        let pipeline = accelerator.prepare_pipeline(model()?, &cut)?;
        let batch = batch(6)?;
        pipeline.call(&batch)?;
        accelerator.wait_for_everyone()?;
        if rank.index() == 1 {
            return Ok(());
        }
        // The first batches may still fit between the ranks.
        let error = (0..20).find_map(|_| pipeline.call(&batch).err()).unwrap();
        let text = error.to_string();
        assert!(text.contains("rank 1"), "{text}");
        Ok(())
    });
}
