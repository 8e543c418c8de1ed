//! `find_executable_batch_size` tries until it fits on every process; all of them come to the
//! same size. Everything that needs memory is made inside.
//!
//! `accelerate launch --cpu --num_processes 2 target/debug/by_feature memory --memory-for 8`

use std::sync::Arc;

use accelerate::optim::Optimizer;
use accelerate::{Accelerator, Result};

use super::{Arguments, occupy};
use crate::evaluation::{Scores, evaluate};
use crate::sentiment::{Sentiment, loss_of, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = Sentiment::read(&arguments.sentiment)?;
    let accelerator = Accelerator::new()?;

    let starting_batch_size = arguments.sentiment.batch_size.get();
    let mut search = accelerator.find_executable_batch_size(starting_batch_size);
    let scores = search.run(|batch_size| train(&accelerator, arguments, &task, batch_size))?;
    let batch_size = search.batch_size();
    accelerator.print(format!("batch size {batch_size}: {}", told(scores)));
    Ok(())
}

fn train(
    accelerator: &Accelerator,
    arguments: &Arguments,
    task: &Sentiment,
    batch_size: usize,
) -> Result<Scores> {
    accelerator.free_memory(())?;
    let model = task.model()?;
    let optimizer = task.optimizer(&model)?;
    let batches = task.loader(Arc::clone(&task.training), batch_size, true)?;
    let held_out = task.loader(Arc::clone(&task.held_out), batch_size, false)?;
    let (model, mut optimizer, batches, held_out) =
        accelerator.prepare((model, optimizer, batches, held_out))?;
    for _epoch in 0..arguments.sentiment.epochs {
        for batch in &batches {
            occupy(arguments, batch_size)?;
            accelerator.backward(&loss_of(&model, batch?)?)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
        }
    }
    evaluate(accelerator, &model, &held_out)
}
