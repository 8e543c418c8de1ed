//! Whoever wants to stop sets the trigger; all processes check it at each step, and leave the
//! loop together.
//!
//! `accelerate launch --cpu --num_processes 2 target/debug/by_feature early_stopping`

use accelerate::optim::Optimizer;
use accelerate::{Accelerator, Result};

use super::{Arguments, EarlyStopping};
use crate::evaluation::evaluate;
use crate::sentiment::{Sentiment, loss_of, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = Sentiment::read(&arguments.sentiment)?;
    let mut stopping = EarlyStopping::new(arguments);
    let accelerator = Accelerator::new()?;

    let model = task.model()?;
    let optimizer = task.optimizer(&model)?;
    let (batches, held_out) = (task.training()?, task.held_out()?);
    let (model, mut optimizer, batches, held_out) =
        accelerator.prepare((model, optimizer, batches, held_out))?;

    let mut steps = 0;
    'training: for _epoch in 0..arguments.sentiment.epochs {
        for batch in &batches {
            let loss = loss_of(&model, batch?)?;
            accelerator.backward(&loss)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
            steps += 1;
            if stopping.should_stop(loss.f_double_value(&[])?) {
                accelerator.set_trigger();
            }
            if accelerator.check_trigger()? {
                break 'training;
            }
        }
    }
    let most = batches.len() as u64 * arguments.sentiment.epochs;
    let steps = accelerator.gather_object(vec![steps])?;
    accelerator.print(format!("stopped after {steps:?} of {most} steps"));
    accelerator.print(told(evaluate(&accelerator, &model, &held_out)?));
    Ok(())
}
