//! Collects the batches of a step first and counts their tokens, so that each loss can be
//! divided by all of them.
//!
//! `cargo run --bin by_feature -- gradient_accumulation_for_autoregressive_models --plain`

use accelerate::Result;
use accelerate::optim::Optimizer;

use super::causal_lm::{count, loss_sum};
use super::{Arguments, set_up};
use crate::sentiment::print;

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let (model, mut optimizer, batches) = set_up(arguments)?;

    let mut number = 0;
    for _epoch in 0..arguments.sentiment.epochs {
        let mut batches = batches.iter();
        loop {
            let parts = batches
                .by_ref()
                .take(arguments.gradient_accumulation_steps.get());
            let parts = parts.collect::<Result<Vec<_>>>()?;
            if parts.is_empty() {
                break;
            }
            let mut tokens = 0;
            for (_, labels) in &parts {
                tokens += count(labels)?;
            }
            let mut mean = 0.0;
            for (ids, labels) in parts {
                let loss = loss_sum(&model, &ids, &labels)?.f_div_scalar(tokens)?;
                mean += loss.f_double_value(&[])?;
                loss.f_backward()?;
            }
            optimizer.step()?;
            optimizer.zero_grad()?;
            number += 1;
            print(format!(
                "step {number}: loss {mean:.4} over {tokens} tokens"
            ));
        }
    }
    Ok(())
}
