//! Logs settings, the loss of each step and the scores of each epoch, whatever it logs with.
//!
//! `accelerate launch --cpu --num_processes 2 target/debug/by_feature tracking --log-with tensorboard,local`

use accelerate::optim::Optimizer;
use accelerate::tracking::{LogWith, Values, number};
use accelerate::{Accelerator, Result};

use super::Arguments;
use crate::evaluation::evaluate;
use crate::sentiment::{Mean, Sentiment, loss_of, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let job = &arguments.sentiment;
    let task = Sentiment::read(job)?;
    let accelerator = Accelerator::builder()
        .log_with(
            arguments
                .log_with
                .iter()
                .map(|name| LogWith::from(name.as_str())),
        )
        .logging_dir(&arguments.logging_dir)
        .build()?;
    let config = Values::new()
        .with("lr", job.lr)
        .with("epochs", job.epochs)
        .with("batch_size", job.batch_size.get());
    accelerator.init_trackers("sentiment", Some(&config))?;

    let model = task.model()?;
    let optimizer = task.optimizer(&model)?;
    let (batches, held_out) = (task.training()?, task.held_out()?);
    let (model, mut optimizer, batches, held_out) =
        accelerator.prepare((model, optimizer, batches, held_out))?;

    let mut step = 0;
    for epoch in 1..=job.epochs {
        let mut mean = Mean::default();
        for batch in &batches {
            let loss = loss_of(&model, batch?)?;
            mean.add(&loss)?;
            accelerator.backward(&loss)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
            accelerator.log([("train_loss", number(&loss)?)], Some(step));
            step += 1;
        }
        let scores = evaluate(&accelerator, &model, &held_out)?;
        let values = Values::new()
            .with("epoch", epoch)
            .with("epoch_loss", mean.get());
        accelerator.log(values, Some(step));
        accelerator.print(format!(
            "epoch {epoch}: loss {:.4}, {}",
            mean.get(),
            told(scores)
        ));
    }
    if let Some(folder) = accelerator.run_folder() {
        accelerator.print(format!(
            "look at it with `accelerate watch {}`",
            folder.display()
        ));
    }
    accelerator.end_training()
}
