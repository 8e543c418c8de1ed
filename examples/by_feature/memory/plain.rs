//! Tries again by hand: whether an error says that memory was short has to be known.
//!
//! `cargo run --bin by_feature -- memory --plain --memory-for 8`

use std::sync::Arc;

use accelerate::Result;
use accelerate::memory::is_out_of_memory;
use accelerate::optim::Optimizer;

use super::{Arguments, occupy};
use crate::evaluation::Scores;
use crate::sentiment::{self, Sentiment, loss_of, print, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = Sentiment::read(&arguments.sentiment)?;

    let mut batch_size = arguments.sentiment.batch_size.get();
    let scores = loop {
        match train(arguments, &task, batch_size) {
            Err(error) if is_out_of_memory(&error) && batch_size > 1 => batch_size /= 2,
            done => break done?,
        }
    };
    print(format!("batch size {batch_size}: {}", told(scores)));
    Ok(())
}

fn train(arguments: &Arguments, task: &Sentiment, batch_size: usize) -> Result<Scores> {
    let model = task.model()?;
    let mut optimizer = task.optimizer(&model)?;
    let batches = task.loader(Arc::clone(&task.training), batch_size, true)?;
    let held_out = task.loader(Arc::clone(&task.held_out), batch_size, false)?;
    for _epoch in 0..arguments.sentiment.epochs {
        for batch in &batches {
            occupy(arguments, batch_size)?;
            loss_of(&model, batch?)?.f_backward()?;
            optimizer.step()?;
            optimizer.zero_grad()?;
        }
    }
    sentiment::evaluate(&model, &held_out)
}
