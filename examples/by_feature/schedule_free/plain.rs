//! The optimizer is switched together with the model.
//!
//! `cargo run --bin by_feature -- schedule_free --plain`

use accelerate::Result;
use accelerate::optim::Optimizer;

use super::{Arguments, optimizer};
use crate::sentiment::{self, Mean, Sentiment, loss_of, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = Sentiment::read(&arguments.sentiment)?;

    let model = task.model()?;
    let mut optimizer = optimizer(&model, arguments)?;
    let (batches, held_out) = (task.training()?, task.held_out()?);

    for epoch in 1..=arguments.sentiment.epochs {
        let mut mean = Mean::default();
        optimizer.train()?;
        for batch in &batches {
            let loss = loss_of(&model, batch?)?;
            mean.add(&loss)?;
            loss.f_backward()?;
            optimizer.step()?;
            optimizer.zero_grad()?;
        }
        optimizer.eval()?;
        let scores = told(sentiment::evaluate(&model, &held_out)?);
        sentiment::print(format!("epoch {epoch}: loss {:.4}, {scores}", mean.get()));
    }
    Ok(())
}
