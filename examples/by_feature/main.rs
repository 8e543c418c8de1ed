//! The features of the library, one at a time: each folder holds one of them as two programs,
//! `plain.rs` and `accelerated.rs`. What differs between the two is the feature.
//!
//! ```text
//! cargo run --bin by_feature -- early_stopping --plain                               # without it
//! cargo run --bin by_feature -- early_stopping                                       # 1 process
//! accelerate launch --cpu --num_processes 2 target/debug/by_feature early_stopping   # N processes
//! ```
//!
//! `sentiment` is what they share: the data, the model and the arguments.

#![forbid(unsafe_code)]

mod automatic_gradient_accumulation;
#[path = "../nlp/batches.rs"]
mod batches;
mod cross_validation;
mod ddp_comm_hook;
mod early_stopping;
#[path = "../nlp/evaluation.rs"]
mod evaluation;
mod gradient_accumulation;
mod gradient_accumulation_exact;
mod gradient_accumulation_for_autoregressive_models;
mod local_sgd;
mod logging;
mod memory;
mod multi_process_metrics;
mod profiler;
mod schedule_free;
mod sentiment;
#[path = "../nlp/snippets.rs"]
mod snippets;
mod tracking;

use std::process::ExitCode;

use accelerate::Result;
use accelerate_examples::failure::exit_code;
use clap::{Parser, Subcommand};

/// Shows one feature of the library.
#[derive(Debug, Parser)]
struct CommandLine {
    #[command(subcommand)]
    feature: Feature,
    /// Run the program without the feature.
    #[arg(long, global = true)]
    plain: bool,
}

#[derive(Debug, Subcommand)]
#[command(rename_all = "snake_case")]
enum Feature {
    /// Larger batches than fit at once.
    GradientAccumulation(gradient_accumulation::Arguments),
    /// The smallest program that shows that accumulation changes nothing.
    GradientAccumulationExact,
    /// Accumulation over batches with different numbers of tokens.
    GradientAccumulationForAutoregressiveModels(
        gradient_accumulation_for_autoregressive_models::Arguments,
    ),
    /// All processes stop together as soon as one of them wants to.
    EarlyStopping(early_stopping::Arguments),
    /// A model for each part of the data, and their common vote.
    CrossValidation(cross_validation::Arguments),
    /// Scores that count each sample once.
    MultiProcessMetrics(sentiment::Arguments),
    /// A batch size that fits into memory.
    Memory(memory::Arguments),
    /// A batch size that fits into memory, and accumulation that makes up for it.
    AutomaticGradientAccumulation(memory::Arguments),
    /// Gradients that travel in half precision or compressed.
    DdpCommHook(ddp_comm_hook::Arguments),
    /// Processes that train apart and meet now and then.
    LocalSgd(local_sgd::Arguments),
    /// An optimizer that needs no schedule.
    ScheduleFree(schedule_free::Arguments),
    /// Messages that come once, or in order.
    Logging(sentiment::Arguments),
    /// Which operations the steps consist of, and how long each takes.
    Profiler(profiler::Arguments),
    /// Curves to look at while it trains, and afterwards.
    Tracking(tracking::Arguments),
}

impl Feature {
    fn run(&self, plain: bool) -> Result<()> {
        use Feature::*;
        match (self, plain) {
            (GradientAccumulation(arguments), true) => gradient_accumulation::plain::run(arguments),
            (GradientAccumulation(arguments), false) => {
                gradient_accumulation::accelerated::run(arguments)
            }
            (GradientAccumulationExact, true) => gradient_accumulation_exact::plain::run(),
            (GradientAccumulationExact, false) => gradient_accumulation_exact::accelerated::run(),
            (GradientAccumulationForAutoregressiveModels(arguments), true) => {
                gradient_accumulation_for_autoregressive_models::plain::run(arguments)
            }
            (GradientAccumulationForAutoregressiveModels(arguments), false) => {
                gradient_accumulation_for_autoregressive_models::accelerated::run(arguments)
            }
            (EarlyStopping(arguments), true) => early_stopping::plain::run(arguments),
            (EarlyStopping(arguments), false) => early_stopping::accelerated::run(arguments),
            (CrossValidation(arguments), true) => cross_validation::plain::run(arguments),
            (CrossValidation(arguments), false) => cross_validation::accelerated::run(arguments),
            (MultiProcessMetrics(arguments), true) => multi_process_metrics::plain::run(arguments),
            (MultiProcessMetrics(arguments), false) => {
                multi_process_metrics::accelerated::run(arguments)
            }
            (Memory(arguments), true) => memory::plain::run(arguments),
            (Memory(arguments), false) => memory::accelerated::run(arguments),
            (AutomaticGradientAccumulation(arguments), true) => {
                automatic_gradient_accumulation::plain::run(arguments)
            }
            (AutomaticGradientAccumulation(arguments), false) => {
                automatic_gradient_accumulation::accelerated::run(arguments)
            }
            (DdpCommHook(arguments), true) => ddp_comm_hook::plain::run(arguments),
            (DdpCommHook(arguments), false) => ddp_comm_hook::accelerated::run(arguments),
            (LocalSgd(arguments), true) => local_sgd::plain::run(arguments),
            (LocalSgd(arguments), false) => local_sgd::accelerated::run(arguments),
            (ScheduleFree(arguments), true) => schedule_free::plain::run(arguments),
            (ScheduleFree(arguments), false) => schedule_free::accelerated::run(arguments),
            (Logging(arguments), true) => logging::plain::run(arguments),
            (Logging(arguments), false) => logging::accelerated::run(arguments),
            (Profiler(arguments), true) => profiler::plain::run(arguments),
            (Profiler(arguments), false) => profiler::accelerated::run(arguments),
            (Tracking(arguments), true) => tracking::plain::run(arguments),
            (Tracking(arguments), false) => tracking::accelerated::run(arguments),
        }
    }
}

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    let ended = command_line.feature.run(command_line.plain);
    exit_code(ended.map_err(Into::into))
}
