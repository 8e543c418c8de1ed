//! Two more lines: `local_sgd` before the loop, and its `step` after that of the optimizer.
//!
//! `accelerate launch --cpu --num_processes 2 target/debug/by_feature local_sgd`

use accelerate::optim::Optimizer;
use accelerate::{Accelerator, Result};

use super::{Arguments, apart};
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
    let (model, mut optimizer, batches, held_out) =
        accelerator.prepare((model, optimizer, batches, held_out))?;

    for epoch in 1..=arguments.sentiment.epochs {
        let mut mean = Mean::default();
        let mut local_sgd = accelerator.local_sgd(&model, arguments.local_sgd_steps, true)?;
        for batch in &batches {
            let _step = accelerator.accumulate(&model)?;
            let loss = loss_of(&model, batch?)?;
            mean.add(&loss)?;
            accelerator.backward(&loss)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
            local_sgd.step()?;
        }
        let before = apart(&accelerator, &model)?;
        local_sgd.finish()?;
        let apart = apart(&accelerator, &model)?;
        let scores = told(evaluate(&accelerator, &model, &held_out)?);
        accelerator.print(format!("epoch {epoch}: loss {:.4}, {scores}", mean.get()));
        accelerator.print(format!(
            "models are {apart:.1e} apart, and were {before:.1e} before the last average"
        ));
    }
    Ok(())
}
