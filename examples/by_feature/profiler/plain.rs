//! Accelerated, but nobody looks where the time goes.
//!
//! `cargo run --bin by_feature -- profiler --plain`

use accelerate::optim::Optimizer;
use accelerate::{Accelerator, Result};

use super::Arguments;
use crate::sentiment::{Mean, Sentiment, loss_of};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = Sentiment::read(&arguments.sentiment)?;
    let accelerator = Accelerator::new()?;

    let model = task.model()?;
    let optimizer = task.optimizer(&model)?;
    let (model, mut optimizer, batches) =
        accelerator.prepare((model, optimizer, task.training()?))?;

    for epoch in 1..=arguments.sentiment.epochs {
        let mut mean = Mean::default();
        for batch in &batches {
            let loss = loss_of(&model, batch?)?;
            mean.add(&loss)?;
            accelerator.backward(&loss)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
        }
        accelerator.print(format!("epoch {epoch}: loss {:.4}", mean.get()));
    }
    Ok(())
}
