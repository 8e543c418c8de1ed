//! Accelerated, but gradients travel as they are: without processes that talk there is no hook.
//!
//! `accelerate launch --cpu --num_processes 2 target/debug/by_feature ddp_comm_hook --plain`

use accelerate::optim::Optimizer;
use accelerate::{Accelerator, Result};

use super::Arguments;
use crate::evaluation::evaluate;
use crate::sentiment::{Mean, Sentiment, loss_of, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = Sentiment::read(&arguments.sentiment)?;
    let accelerator = Accelerator::new()?;

    let model = task.model()?;
    let optimizer = task.optimizer(&model)?;
    let (batches, held_out) = (task.training()?, task.held_out()?);
    let (model, mut optimizer, batches, held_out) =
        accelerator.prepare((model, optimizer, batches, held_out))?;

    for epoch in 1..=arguments.sentiment.epochs {
        let mut mean = Mean::default();
        for batch in &batches {
            let loss = loss_of(&model, batch?)?;
            mean.add(&loss)?;
            accelerator.backward(&loss)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
        }
        let scores = told(evaluate(&accelerator, &model, &held_out)?);
        accelerator.print(format!("epoch {epoch}: loss {:.4}, {scores}", mean.get()));
    }
    Ok(())
}
