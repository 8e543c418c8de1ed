//! Fine-tunes a small BERT to tell whether a line of a movie review is positive.
//!
//! ```text
//! cargo xtask demo                                    # everything, on 2 processes
//! nlp --model FOLDER --data FILE                      # 1 process
//! accelerate launch --cpu --num_processes 2 nlp ...   # N processes
//! ```

#![forbid(unsafe_code)]

mod arguments;
mod batches;
mod evaluation;
mod measurement;
mod model_folder;
mod output;
mod snippets;
mod training;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;

use arguments::Arguments;

fn main() -> ExitCode {
    match training::run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&*error);
            ExitCode::FAILURE
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "this is where a program says why it failed"
)]
fn report(error: &dyn Error) {
    eprintln!("error: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprintln!("  caused by: {error}");
        cause = error.source();
    }
}
