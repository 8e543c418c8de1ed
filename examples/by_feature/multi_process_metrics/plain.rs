//! One process sees every sample, and counts them.
//!
//! `cargo run --bin by_feature -- multi_process_metrics --plain`

use accelerate::Result;
use accelerate::nn::Module;
use accelerate::optim::Optimizer;

use crate::evaluation::Scores;
use crate::sentiment::{Arguments, Sentiment, loss_of, predict, print, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = Sentiment::read(arguments)?;

    let model = task.model()?;
    let mut optimizer = task.optimizer(&model)?;
    let (batches, held_out) = (task.training()?, task.held_out()?);

    for epoch in 1..=arguments.epochs {
        model.train(true);
        for batch in &batches {
            loss_of(&model, batch?)?.f_backward()?;
            optimizer.step()?;
            optimizer.zero_grad()?;
        }
        model.train(false);
        let mut scores = Scores::default();
        for batch in &held_out {
            let (logits, labels) = predict(&model, batch?)?;
            scores.add(&logits.f_argmax(-1, false)?, &labels)?;
        }
        print(format!("epoch {epoch}: {}", told(scores)));
    }
    Ok(())
}
