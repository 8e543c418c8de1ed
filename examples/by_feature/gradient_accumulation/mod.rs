//! Gradient accumulation: the optimizer steps on the gradients of several batches.

pub(crate) mod accelerated;
pub(crate) mod plain;

use std::num::NonZeroUsize;

use clap::Args;

use crate::sentiment;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    sentiment: sentiment::Arguments,
    /// Over how many batches gradients are accumulated.
    #[arg(long, default_value = "4")]
    gradient_accumulation_steps: NonZeroUsize,
}

/// How many steps the learning rate falls over: a prepared schedule makes one for each process
/// whenever the optimizer steps.
fn schedule_length(batches: usize, processes: usize, arguments: &Arguments) -> u64 {
    let accumulated = arguments.gradient_accumulation_steps.get();
    let steps = batches.div_ceil(processes).div_ceil(accumulated) * processes;
    steps as u64 * arguments.sentiment.epochs
}
