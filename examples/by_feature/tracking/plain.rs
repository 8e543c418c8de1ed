//! Writes the loss of each step as a line of text. Several processes would all write into one file.
//!
//! `cargo run --bin by_feature -- tracking --plain`

use std::fs::{self, File};
use std::io::Write as _;

use accelerate::optim::Optimizer;
use accelerate::{Error, Result};

use super::Arguments;
use crate::sentiment::{self, Mean, Sentiment, loss_of, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let job = &arguments.sentiment;
    let task = Sentiment::read(job)?;
    fs::create_dir_all(&arguments.logging_dir).map_err(Error::data)?;
    let mut curve = File::create(arguments.logging_dir.join("curve.txt")).map_err(Error::data)?;
    writeln!(curve, "lr {}, {} epochs", job.lr, job.epochs).map_err(Error::data)?;

    let model = task.model()?;
    let mut optimizer = task.optimizer(&model)?;
    let (batches, held_out) = (task.training()?, task.held_out()?);

    let mut step = 0;
    for epoch in 1..=job.epochs {
        let mut mean = Mean::default();
        for batch in &batches {
            let loss = loss_of(&model, batch?)?;
            mean.add(&loss)?;
            loss.f_backward()?;
            optimizer.step()?;
            optimizer.zero_grad()?;
            let value = loss.f_double_value(&[])?;
            writeln!(curve, "step {step}: {value}").map_err(Error::data)?;
            step += 1;
        }
        let scores = sentiment::evaluate(&model, &held_out)?;
        println!("epoch {epoch}: loss {:.4}, {}", mean.get(), told(scores));
    }
    Ok(())
}
