//! The same job as `main.rs`, on one process and without `Accelerator`: what a program looks like
//! before.
//!
//! ```text
//! nlp_plain --model FOLDER --data FILE
//! ```

#![forbid(unsafe_code)]

mod arguments;
mod batches;
mod loader;
mod measurement;
mod model_folder;
mod output;
mod scores;
mod snippets;

use std::error::Error;
use std::process::ExitCode;

use accelerate::nn::{Forward, Module};
use accelerate::optim::{AdamW, AdamWConfig, Optimizer, Scheduler, linear_schedule_with_warmup};
use accelerate::tch::{self, Kind, Tensor};
use accelerate_examples::failure::exit_code;
use accelerate_examples::progress;
use accelerate_models::bert::{BertForSequenceClassification, BertInput};
use clap::Parser;

use arguments::Arguments;
use batches::Batches;
use loader::Loader;
use measurement::Measurement;
use scores::Scores;

/// Share of the steps in which the learning rate rises.
const WARMUP: f64 = 0.1;

fn main() -> ExitCode {
    exit_code(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let (training, held_out) = snippets::read(&arguments.data, arguments.held_out.get())?;
    let source = arguments.model.fetch()?;
    let (tokenizer, config) = model_folder::read(&source, arguments)?;
    tch::manual_seed(arguments.seed);

    let model = model_folder::load(&source, &config)?;
    model.train(true);
    let parameters: Vec<Tensor> = model
        .parameters()
        .into_iter()
        .map(|p| p.tensor().shallow_clone())
        .collect();
    let settings = AdamWConfig {
        lr: arguments.lr,
        ..Default::default()
    };
    let mut optimizer = AdamW::new(parameters, settings)?;
    let collate = Batches {
        tokenizer,
        max_length: arguments.max_length.get(),
    };
    let batches = loader::shuffled(training, arguments, collate.clone())?;
    let held_out = loader::in_order(held_out, arguments, collate)?;
    let total = batches.len() as u64 * arguments.epochs;
    let mut scheduler = linear_schedule_with_warmup(&optimizer, warmup(total), total);

    if let Some(folder) = &arguments.output {
        output::prepare(folder)?;
    }
    let mut measurement = Measurement::start();
    for epoch in 1..=arguments.epochs {
        let bar = progress::bar(format!("epoch {epoch}/{}", arguments.epochs), batches.len());
        for (step, batch) in (1..).zip(&batches) {
            let loss = model.call(batch?)?.loss.ok_or("the batch has no labels")?;
            loss.f_backward()?;
            optimizer.step()?;
            scheduler.step()?;
            optimizer.zero_grad()?;

            let loss = loss.f_double_value(&[])?;
            measurement.step(loss);
            bar.set_message(format!("loss {loss:.4}"));
            bar.inc(1);
            if arguments.max_steps.is_some_and(|most| step >= most) {
                bar.finish();
                return finish(arguments, measurement);
            }
        }
        bar.finish();
        tell(epoch, evaluate(&model, &held_out)?);
    }
    if let Some(folder) = &arguments.output {
        output::save(&model, &source, folder)?;
    }
    finish(arguments, measurement)
}

fn evaluate(
    model: &BertForSequenceClassification,
    batches: &Loader,
) -> Result<Scores, Box<dyn Error>> {
    model.train(false);
    let mut scores = Scores::default();
    for batch in batches {
        let mut batch: BertInput = batch?;
        let labels = batch.labels.take().ok_or("the batch has no labels")?;
        let logits = tch::no_grad(|| model.call(batch))?.logits;
        scores.add(
            &logits.f_argmax(-1, false)?,
            &labels.f_to_kind(Kind::Int64)?,
        )?;
    }
    model.train(true);
    Ok(scores)
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn tell(epoch: u64, scores: Scores) {
    println!(
        "epoch {epoch}: accuracy {:.4}, F1 {:.4} on {} held-out snippets",
        scores.accuracy(),
        scores.f1(),
        scores.samples(),
    );
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a share of a number of steps"
)]
fn warmup(total: u64) -> u64 {
    (total as f64 * WARMUP) as u64
}

fn finish(arguments: &Arguments, measurement: Measurement) -> Result<(), Box<dyn Error>> {
    match &arguments.bench_json {
        Some(path) => Ok(measurement.write(path, 0)?),
        None => Ok(()),
    }
}
