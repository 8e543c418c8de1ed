//! Fine-tunes a small BERT to tell whether a line of a movie review is positive.
//!
//! ```text
//! cargo xtask demo                                    # everything, on 2 processes
//! nlp --model FOLDER --data FILE                      # 1 process
//! accelerate launch --cpu --num_processes 2 nlp ...   # N processes
//! nlp --project-dir FOLDER ...                        # ended early it saves there; again, it goes on
//! ```
//!
//! `plain.rs` is the same job without `Accelerator`: `diff examples/nlp/plain.rs examples/nlp/training.rs`
//! shows what it takes to go from one process to many.

#![forbid(unsafe_code)]

mod arguments;
mod batches;
mod evaluation;
mod loader;
mod measurement;
mod model_folder;
mod output;
mod snippets;
mod stand_ins;
mod training;

use std::process::ExitCode;

use accelerate_examples::failure::exit_code;
use accelerate_examples::running::Running;
use clap::Parser;

use arguments::Arguments;

/// Fine-tunes a small BERT for sentiment on movie-review snippets.
#[derive(Debug, Parser)]
#[command(args_override_self = true)]
struct CommandLine {
    #[command(flatten)]
    arguments: Arguments,
    #[command(flatten)]
    running: Running,
}

fn main() -> ExitCode {
    let CommandLine { arguments, running } = CommandLine::parse();
    exit_code(training::run(&arguments, &running))
}
