//! The search tells each try how much memory there is, and the number of steps follows.
//!
//! `accelerate launch --cpu --num_processes 2 target/debug/by_feature automatic_gradient_accumulation --memory-for 4`

use std::sync::Arc;

use accelerate::optim::Optimizer;
use accelerate::{Accelerator, Result};

use super::steps_for;
use crate::evaluation::{Scores, evaluate};
use crate::memory::{Arguments, occupy};
use crate::sentiment::{Sentiment, loss_of, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = Sentiment::read(&arguments.sentiment)?;
    let accelerator = Accelerator::new()?;

    let starting_batch_size = arguments.sentiment.batch_size.get();
    let mut search = accelerator.find_executable_batch_size(starting_batch_size);
    let scores = search.run(|batch_size| train(&accelerator, arguments, &task, batch_size))?;
    let batch_size = search.batch_size();
    let steps = accelerator.gradient_accumulation_steps();
    let samples = batch_size * steps.get() * accelerator.num_processes();
    accelerator.print(format!(
        "batch size {batch_size}, {steps} batches in a step, {samples} samples of all processes: {}",
        told(scores)
    ));
    Ok(())
}

fn train(
    accelerator: &Accelerator,
    arguments: &Arguments,
    task: &Sentiment,
    batch_size: usize,
) -> Result<Scores> {
    accelerator.free_memory(())?;
    let steps = steps_for(arguments.sentiment.batch_size, batch_size);
    accelerator.set_gradient_accumulation_steps(steps);
    let model = task.model()?;
    let optimizer = task.optimizer(&model)?;
    let batches = task.loader(Arc::clone(&task.training), batch_size, true)?;
    let held_out = task.loader(Arc::clone(&task.held_out), batch_size, false)?;
    let (model, mut optimizer, batches, held_out) =
        accelerator.prepare((model, optimizer, batches, held_out))?;
    for _epoch in 0..arguments.sentiment.epochs {
        for batch in &batches {
            let _step = accelerator.accumulate(&model)?;
            occupy(arguments, batch_size)?;
            accelerator.backward(&loss_of(&model, batch?)?)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
        }
    }
    evaluate(accelerator, &model, &held_out)
}
