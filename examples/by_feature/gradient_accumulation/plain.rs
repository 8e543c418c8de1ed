//! Accumulates by hand: the loss is divided, and every fourth batch and the last one step.
//!
//! `cargo run --bin by_feature -- gradient_accumulation --plain`

use accelerate::Result;
use accelerate::optim::{Optimizer, Scheduler, linear_schedule_with_warmup};

use super::{Arguments, schedule_length};
use crate::sentiment::{self, Mean, Sentiment, loss_of, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = Sentiment::read(&arguments.sentiment)?;
    let steps = arguments.gradient_accumulation_steps.get();

    let model = task.model()?;
    let mut optimizer = task.optimizer(&model)?;
    let (batches, held_out) = (task.training()?, task.held_out()?);
    let length = schedule_length(batches.len(), 1, arguments);
    let mut scheduler = linear_schedule_with_warmup(&optimizer, 0, length);

    for epoch in 1..=arguments.sentiment.epochs {
        let mut mean = Mean::default();
        for (number, batch) in (1..).zip(&batches) {
            let loss = loss_of(&model, batch?)?;
            mean.add(&loss)?;
            loss.f_div_scalar(steps as i64)?.f_backward()?;
            if number % steps == 0 || number == batches.len() {
                optimizer.step()?;
                scheduler.step()?;
                optimizer.zero_grad()?;
            }
        }
        let scores = sentiment::evaluate(&model, &held_out)?;
        let scores = told(scores);
        sentiment::print(format!("epoch {epoch}: loss {:.4}, {scores}", mean.get()));
    }
    Ok(())
}
