//! `gather_for_metrics` joins what all processes predict, and drops what was only filled up;
//! `gather` keeps it, and counts some samples twice.
//!
//! `accelerate launch --cpu --num_processes 2 target/debug/by_feature multi_process_metrics`

use accelerate::nn::Module;
use accelerate::optim::Optimizer;
use accelerate::tch::Tensor;
use accelerate::{Accelerator, Result};

use crate::evaluation::Scores;
use crate::sentiment::{Arguments, Sentiment, loss_of, predict, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = Sentiment::read(arguments)?;
    let accelerator = Accelerator::new()?;

    let model = task.model()?;
    let optimizer = task.optimizer(&model)?;
    let (batches, held_out) = (task.training()?, task.held_out()?);
    let (model, mut optimizer, batches, held_out) =
        accelerator.prepare((model, optimizer, batches, held_out))?;

    for epoch in 1..=arguments.epochs {
        model.train(true);
        for batch in &batches {
            accelerator.backward(&loss_of(&model, batch?)?)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
        }
        model.train(false);
        let (mut scores, mut with_filling) = (Scores::default(), 0);
        for batch in &held_out {
            let (logits, labels) = predict(&model, batch?)?;
            let predictions = logits.f_argmax(-1, false)?;
            with_filling += accelerator.gather(&labels)?.numel();
            let (predictions, labels): (Tensor, Tensor) =
                accelerator.gather_for_metrics((predictions, labels))?;
            scores.add(&predictions, &labels)?;
        }
        accelerator.print(format!("epoch {epoch}: {}", told(scores)));
        if with_filling as i64 > scores.samples() {
            accelerator.print(format!("`gather` would have counted {with_filling}"));
        }
    }
    Ok(())
}
