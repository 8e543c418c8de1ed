//! Gives each sum of losses to `backward_normalized` with its number of tokens: gradients are
//! divided by the tokens of all batches and all processes as soon as they are complete.
//!
//! `accelerate launch --cpu --num_processes 2 target/debug/by_feature gradient_accumulation_for_autoregressive_models`

use accelerate::optim::Optimizer;
use accelerate::{Accelerator, Result};

use super::causal_lm::{count, loss_sum};
use super::{Arguments, set_up};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let accelerator = Accelerator::builder()
        .gradient_accumulation_steps(arguments.gradient_accumulation_steps)
        .build()?;
    let (model, mut optimizer, batches) = accelerator.prepare(set_up(arguments)?)?;

    let mut number = 0;
    for _epoch in 0..arguments.sentiment.epochs {
        for batch in &batches {
            let (ids, labels) = batch?;
            let step = accelerator.accumulate(&model)?;
            let loss = loss_sum(&model, &ids, &labels)?;
            if let Some(done) = step.backward_normalized(&loss, count(&labels)?)? {
                number += 1;
                let (mean, tokens) = (done.mean.f_double_value(&[])?, done.items);
                let tokens = tokens.f_int64_value(&[])?;
                accelerator.print(format!(
                    "step {number}: loss {mean:.4} over {tokens} tokens"
                ));
            }
            optimizer.step()?;
            optimizer.zero_grad()?;
        }
    }
    Ok(())
}
