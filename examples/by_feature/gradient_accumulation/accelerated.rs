//! Accumulates with `accumulate`: nothing is counted or divided here, and the processes talk
//! only when gradients are complete.
//!
//! `accelerate launch --cpu --num_processes 2 target/debug/by_feature gradient_accumulation`

use accelerate::optim::{Optimizer, Scheduler, linear_schedule_with_warmup};
use accelerate::{Accelerator, Result};

use super::{Arguments, schedule_length};
use crate::evaluation::evaluate;
use crate::sentiment::{Mean, Sentiment, loss_of, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = Sentiment::read(&arguments.sentiment)?;
    let accelerator = Accelerator::builder()
        .gradient_accumulation_steps(arguments.gradient_accumulation_steps)
        .build()?;

    let model = task.model()?;
    let optimizer = task.optimizer(&model)?;
    let (batches, held_out) = (task.training()?, task.held_out()?);
    let processes = accelerator.num_processes();
    let length = schedule_length(batches.len(), processes, arguments);
    let scheduler = linear_schedule_with_warmup(&optimizer, 0, length);
    let (model, mut optimizer, batches, held_out, mut scheduler) =
        accelerator.prepare((model, optimizer, batches, held_out, scheduler))?;

    for epoch in 1..=arguments.sentiment.epochs {
        let mut mean = Mean::default();
        for batch in &batches {
            let _step = accelerator.accumulate(&model)?;
            let loss = loss_of(&model, batch?)?;
            mean.add(&loss)?;
            accelerator.backward(&loss)?;
            optimizer.step()?;
            scheduler.step()?;
            optimizer.zero_grad()?;
        }
        let scores = evaluate(&accelerator, &model, &held_out)?;
        let scores = told(scores);
        accelerator.print(format!("epoch {epoch}: loss {:.4}, {scores}", mean.get()));
    }
    Ok(())
}
