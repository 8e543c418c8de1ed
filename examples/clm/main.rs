//! Trains a small GPT-2 on text from nothing: tokenizer, model, perplexity, and text it makes up.
//!
//! ```text
//! clm --data FOLDER                                   # 1 process
//! accelerate launch --cpu --num_processes 2 clm ...   # N processes
//! clm --project-dir FOLDER                            # ended early it saves there; again, it goes on
//! ```
//!
//! Without `--data` it reads the books that `cargo xtask setup` fetched.

#![forbid(unsafe_code)]

mod arguments;
mod corpus;
mod evaluation;
mod sample;
mod training;

use std::process::ExitCode;

use accelerate_examples::failure::exit_code;
use clap::Parser;

use arguments::Arguments;

fn main() -> ExitCode {
    exit_code(training::run(&Arguments::parse()))
}
