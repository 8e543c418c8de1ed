//! A process by itself just leaves the loop.
//!
//! `cargo run --bin by_feature -- early_stopping --plain`

use accelerate::Result;
use accelerate::optim::Optimizer;

use super::{Arguments, EarlyStopping};
use crate::sentiment::{self, Sentiment, loss_of, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = Sentiment::read(&arguments.sentiment)?;
    let mut stopping = EarlyStopping::new(arguments);

    let model = task.model()?;
    let mut optimizer = task.optimizer(&model)?;
    let (batches, held_out) = (task.training()?, task.held_out()?);

    let mut steps = 0;
    'training: for _epoch in 0..arguments.sentiment.epochs {
        for batch in &batches {
            let loss = loss_of(&model, batch?)?;
            loss.f_backward()?;
            optimizer.step()?;
            optimizer.zero_grad()?;
            steps += 1;
            if stopping.should_stop(loss.f_double_value(&[])?) {
                break 'training;
            }
        }
    }
    let most = batches.len() as u64 * arguments.sentiment.epochs;
    sentiment::print(format!("stopped after [{steps}] of {most} steps"));
    sentiment::print(told(sentiment::evaluate(&model, &held_out)?));
    Ok(())
}
