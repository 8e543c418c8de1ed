//! The job itself.

use std::error::Error;
use std::io::{self, IsTerminal as _};
use std::time::Instant;

use accelerate::nn::{Forward, Module};
use accelerate::optim::{Optimizer, Scheduler};
use accelerate::{Accelerator, tch::Tensor};
use accelerate_examples::running::Running;
use accelerate_models::bert::{BertForSequenceClassification, BertInput};
use indicatif::{ProgressBar, ProgressStyle};

use crate::arguments::Arguments;
use crate::batches::Batches;
use crate::evaluation::evaluate;
use crate::measurement::Measurement;
use crate::{loader, model_folder, output, snippets, stand_ins};

type BoxError = Box<dyn Error>;

/// Trains and evaluates as the arguments say.
pub(crate) fn run(arguments: &Arguments, running: &Running) -> Result<(), BoxError> {
    start_log();
    let (training, held_out) = snippets::read(&arguments.data, arguments.held_out.get())?;
    let accelerator = running.accelerator()?;
    let source = arguments.model.fetch_together(accelerator.state())?;
    let (tokenizer, config) = model_folder::read(&source, arguments)?;
    tch::manual_seed(arguments.seed);

    let model = model_folder::load(&source, &config)?;
    model.train(true);
    let parameters: Vec<Tensor> = model
        .parameters()
        .into_iter()
        .map(|p| p.tensor().shallow_clone())
        .collect();
    let optimizer = stand_ins::optimizer(&accelerator, parameters, arguments.lr)?;
    let collate = Batches {
        tokenizer,
        max_length: arguments.max_length.get(),
    };
    let batches = loader::shuffled(training, arguments, collate.clone())?;
    let held_out = loader::in_order(held_out, arguments, collate)?;
    let whole = batches.len();
    let (model, batches, held_out) = accelerator.prepare((model, batches, held_out))?;
    // The prepared schedule moves once per rank at each update: it is as long as the unprepared loader,
    // divided by the batches of an update. Where a config has the sizes of batches, these are known now.
    let accumulated = accelerator.gradient_accumulation_steps().get();
    let total = whole.div_ceil(accumulated) as u64 * arguments.epochs;
    let scheduler = stand_ins::scheduler(&accelerator, &*optimizer, running, total);
    let (mut optimizer, mut scheduler) = accelerator.prepare((optimizer, scheduler))?;
    running.tell(&accelerator);

    if let Some(folder) = arguments
        .output
        .as_deref()
        .filter(|_| accelerator.is_main_process())
    {
        output::prepare(folder)?;
    }
    accelerator.resume()?;
    let mut measurement = Measurement::start();
    for epoch in batches.iteration()..arguments.epochs {
        let bar = progress(&accelerator, batches.len(), epoch, arguments.epochs);
        let start = Instant::now();
        for (step, batch) in (1u64..).zip(&batches) {
            let update = accelerator.accumulate(&model)?;
            let loss = loss_of(&model, batch?)?;
            accelerator.backward(&loss)?;
            optimizer.step()?;
            scheduler.step()?;
            optimizer.zero_grad()?;
            drop(update);

            let loss = loss.f_double_value(&[])?;
            measurement.step(loss);
            let samples = step * (arguments.batch_size.get() * accelerator.num_processes()) as u64;
            bar.set_message(format!(
                "loss {loss:.4}, lr {:.2e}, {:.0} samples/s",
                scheduler.last_lr()[0],
                samples as f64 / start.elapsed().as_secs_f64()
            ));
            bar.inc(1);
            if arguments.max_steps.is_some_and(|most| step >= most as u64) {
                bar.finish();
                return finish(&accelerator, arguments, measurement);
            }
            accelerator.leave_when_asked()?;
        }
        bar.finish();
        let scores = evaluate(&accelerator, &model, &held_out)?;
        accelerator.print(format!(
            "epoch {}: accuracy {:.4}, F1 {:.4} on {} held-out snippets, {:.1} s",
            epoch + 1,
            scores.accuracy(),
            scores.f1(),
            scores.samples(),
            start.elapsed().as_secs_f64(),
        ));
    }
    if let Some(folder) = &arguments.output {
        // Each process may have a part of the model only: here all of it is there.
        let saved = model.with_whole_parameters(false, |model| {
            let save = || output::save(model, &source, folder);
            Ok(accelerator.on_main_process(save))
        })?;
        if saved.transpose()?.is_some() {
            accelerator.print(format!("saved the model to {}", folder.display()));
        }
        accelerator.wait_for_everyone()?;
    }
    finish(&accelerator, arguments, measurement)
}

fn loss_of(model: &BertForSequenceClassification, batch: BertInput) -> Result<Tensor, BoxError> {
    model
        .call(batch)?
        .loss
        .ok_or_else(|| "the batch has no labels".into())
}

fn progress(accelerator: &Accelerator, steps: usize, epoch: u64, epochs: u64) -> ProgressBar {
    if !accelerator.is_local_main_process() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(steps as u64).with_prefix(format!("epoch {}/{epochs}", epoch + 1));
    let style =
        ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {msg} [{elapsed}<{eta}]");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn finish(
    accelerator: &Accelerator,
    arguments: &Arguments,
    measurement: Measurement,
) -> Result<(), BoxError> {
    if let Some(path) = &arguments.bench_json {
        measurement
            .write(path, accelerator.process_index())
            .map_err(|e| {
                format!(
                    "cannot write the measurement beside `{}`: {e}",
                    path.display()
                )
            })?;
    }
    Ok(())
}

/// Warnings of the library go to standard error.
fn start_log() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .init();
}
