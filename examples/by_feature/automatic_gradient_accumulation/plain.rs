//! Tries again and accumulates by hand.
//!
//! `cargo run --bin by_feature -- automatic_gradient_accumulation --plain --memory-for 4`

use std::sync::Arc;

use accelerate::Result;
use accelerate::memory::is_out_of_memory;
use accelerate::optim::Optimizer;

use super::steps_for;
use crate::evaluation::Scores;
use crate::memory::{Arguments, occupy};
use crate::sentiment::{self, Sentiment, loss_of, print, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = Sentiment::read(&arguments.sentiment)?;

    let mut batch_size = arguments.sentiment.batch_size.get();
    let scores = loop {
        match train(arguments, &task, batch_size) {
            Err(error) if is_out_of_memory(&error) && batch_size > 1 => batch_size /= 2,
            done => break done?,
        }
    };
    let steps = steps_for(arguments.sentiment.batch_size, batch_size);
    let samples = batch_size * steps.get();
    print(format!(
        "batch size {batch_size}, {steps} batches in a step, {samples} samples of all processes: {}",
        told(scores)
    ));
    Ok(())
}

fn train(arguments: &Arguments, task: &Sentiment, batch_size: usize) -> Result<Scores> {
    let steps = steps_for(arguments.sentiment.batch_size, batch_size).get();
    let model = task.model()?;
    let mut optimizer = task.optimizer(&model)?;
    let batches = task.loader(Arc::clone(&task.training), batch_size, true)?;
    let held_out = task.loader(Arc::clone(&task.held_out), batch_size, false)?;
    for _epoch in 0..arguments.sentiment.epochs {
        for (number, batch) in (1..).zip(&batches) {
            occupy(arguments, batch_size)?;
            let loss = loss_of(&model, batch?)?;
            loss.f_div_scalar(steps as i64)?.f_backward()?;
            if number % steps == 0 || number == batches.len() {
                optimizer.step()?;
                optimizer.zero_grad()?;
            }
        }
    }
    sentiment::evaluate(&model, &held_out)
}
