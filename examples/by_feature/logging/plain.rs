//! Tells things to `tracing`. Several processes would each tell everything.
//!
//! `cargo run --bin by_feature -- logging --plain`

use accelerate::Result;
use accelerate::optim::Optimizer;
use tracing::{debug, info};

use super::start_log;
use crate::sentiment::{self, Arguments, Mean, Sentiment, loss_of, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    start_log()?;
    let task = Sentiment::read(arguments)?;
    let samples = task.training.len();
    info!("training on {samples} snippets");

    let model = task.model()?;
    let mut optimizer = task.optimizer(&model)?;
    let (batches, held_out) = (task.training()?, task.held_out()?);

    for epoch in 1..=arguments.epochs {
        let mut mean = Mean::default();
        for (step, batch) in batches.iter().enumerate() {
            let loss = loss_of(&model, batch?)?;
            mean.add(&loss)?;
            debug!("step {step}: loss {:.4}", loss.f_double_value(&[])?);
            loss.f_backward()?;
            optimizer.step()?;
            optimizer.zero_grad()?;
        }
        info!("epoch {epoch}: loss {:.4}", mean.get());
        let scores = sentiment::evaluate(&model, &held_out)?;
        info!("epoch {epoch}: {}", told(scores));
    }
    Ok(())
}
