//! Tells things to a logger: the main process speaks for all, unless all are to speak, at once
//! or in order.
//!
//! `ACCELERATE_LOG_LEVEL=debug accelerate launch --cpu --num_processes 2 target/debug/by_feature logging`

use accelerate::logging::get_logger;
use accelerate::optim::Optimizer;
use accelerate::{Accelerator, Result};

use super::start_log;
use crate::evaluation::evaluate;
use crate::sentiment::{Arguments, Mean, Sentiment, loss_of, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    start_log()?;
    let task = Sentiment::read(arguments)?;
    let accelerator = Accelerator::new()?;
    let logger = get_logger("by_feature")?;
    let samples = task.training.len();
    logger.info(format!("training on {samples} snippets"));

    let model = task.model()?;
    let optimizer = task.optimizer(&model)?;
    let (batches, held_out) = (task.training()?, task.held_out()?);
    let (model, mut optimizer, batches, held_out) =
        accelerator.prepare((model, optimizer, batches, held_out))?;

    for epoch in 1..=arguments.epochs {
        let mut mean = Mean::default();
        for (step, batch) in batches.iter().enumerate() {
            let loss = loss_of(&model, batch?)?;
            mean.add(&loss)?;
            let told = format!("step {step}: loss {:.4}", loss.f_double_value(&[])?);
            logger.on_every_process().debug(told);
            accelerator.backward(&loss)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
        }
        let told_loss = format!("epoch {epoch}: loss {:.4}", mean.get());
        logger.in_order().info(told_loss)?;
        let scores = evaluate(&accelerator, &model, &held_out)?;
        logger.info(format!("epoch {epoch}: {}", told(scores)));
    }
    Ok(())
}
