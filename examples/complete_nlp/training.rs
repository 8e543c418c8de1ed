//! The job itself.

use std::error::Error;

use accelerate::Accelerator;
use accelerate::nn::{Forward, Module};
use accelerate::optim::{Optimizer, Scheduler};
use accelerate::tch::Tensor;
use accelerate_examples::curves::Curves;
use accelerate_examples::progress;

use crate::arguments::Arguments;
use crate::batches::Batches;
use crate::evaluation::{Scores, evaluate};
use crate::{model_folder, output, parts, snippets};

/// Trains and evaluates as the arguments say.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    progress::start_log();
    let (training, held_out) = snippets::read(&arguments.data, arguments.held_out.get())?;
    let accelerator = parts::accelerator(arguments)?;
    let source = arguments.model.fetch_together(accelerator.state())?;
    let (tokenizer, config) = model_folder::read(&source, arguments)?;
    let model = model_folder::load(&source, &config)?;
    model.train(true);

    let optimizer = parts::optimizer(&model, arguments)?;
    let collate = Batches {
        tokenizer,
        max_length: arguments.max_length.get(),
    };
    let batches = parts::loader(training, arguments, collate.clone(), true)?;
    let held_out = parts::loader(held_out, arguments, collate, false)?;
    // The prepared schedule moves once per rank at each update of the weights.
    let accumulated = accelerator.gradient_accumulation_steps().get();
    let updates = batches.len().div_ceil(accumulated) as u64 * arguments.epochs;
    let scheduler = parts::scheduler(&optimizer, arguments, updates)?;

    let (model, mut optimizer, batches, held_out, mut scheduler) =
        accelerator.prepare((model, optimizer, batches, held_out, scheduler))?;
    if let Some(folder) = main_process(&accelerator, arguments.output.as_deref()) {
        output::prepare(folder)?;
    }

    let parameters = tensors(&*model);
    let mut seen = Seen::default();
    for epoch in 0..arguments.epochs {
        let name = format!("epoch {}/{}", epoch + 1, arguments.epochs);
        let bar = progress::bar_of_machine(&accelerator, name, batches.len());
        for (step, batch) in (1..).zip(&batches) {
            let _scope = accelerator.accumulate(&model)?;
            let loss = model.call(batch?)?.loss.ok_or("the batch has no labels")?;
            accelerator.backward(&loss)?;
            clip(&accelerator, &parameters, arguments)?;
            optimizer.step()?;
            scheduler.step()?;
            optimizer.zero_grad()?;

            let loss = loss.f_double_value(&[])?;
            seen.step(loss, scheduler.last_lr()[0]);
            bar.set_message(format!("loss {loss:.4}"));
            bar.inc(1);
            if arguments.max_steps.is_some_and(|most| step >= most) {
                break;
            }
        }
        bar.finish();
        let scores = evaluate(&accelerator, &model, &held_out)?;
        seen.epoch(scores);
        accelerator.print(format!(
            "epoch {}: accuracy {:.4}, F1 {:.4} on {} held-out snippets",
            epoch + 1,
            scores.accuracy(),
            scores.f1(),
            scores.samples(),
        ));
    }

    if let Some(path) = main_process(&accelerator, arguments.curves.as_deref()) {
        seen.curves().save(path)?;
    }
    if let Some(folder) = &arguments.output {
        let model = accelerator.unwrap_model(model);
        if accelerator.is_main_process() {
            output::save(&model, &source, folder)?;
            accelerator.print(format!("saved the model to {}", folder.display()));
        }
    }
    Ok(accelerator.end_training()?)
}

/// Clips as the arguments say; while gradients are accumulated nothing is done.
fn clip(
    accelerator: &Accelerator,
    parameters: &[Tensor],
    arguments: &Arguments,
) -> accelerate::Result<()> {
    if let Some(norm) = arguments.max_grad_norm {
        accelerator.clip_grad_norm(parameters, norm)?;
    }
    match arguments.max_grad_value {
        Some(value) => accelerator.clip_grad_value(parameters, value),
        None => Ok(()),
    }
}

fn tensors(model: &dyn Module) -> Vec<Tensor> {
    let parameters = model.parameters().into_iter();
    parameters.map(|p| p.tensor().shallow_clone()).collect()
}

/// What is there, on the rank that writes files.
fn main_process<T>(accelerator: &Accelerator, value: Option<T>) -> Option<T> {
    value.filter(|_| accelerator.is_main_process())
}

/// What was seen while training.
#[derive(Debug, Default)]
struct Seen {
    loss: Vec<(u64, f64)>,
    lr: Vec<(u64, f64)>,
    accuracy: Vec<(u64, f64)>,
}

impl Seen {
    fn step(&mut self, loss: f64, lr: f64) {
        let step = self.loss.len() as u64 + 1;
        self.loss.push((step, loss));
        self.lr.push((step, lr));
    }

    fn epoch(&mut self, scores: Scores) {
        let step = self.loss.len() as u64;
        self.accuracy.push((step, scores.accuracy()));
    }

    fn curves(&self) -> Curves {
        Curves::new("sentiment of movie reviews")
            .line("loss", &self.loss)
            .line("learning rate", &self.lr)
            .line("accuracy", &self.accuracy)
    }
}
