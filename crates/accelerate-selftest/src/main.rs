//! The program behind `accelerate test`: everything the library does between processes, tried out.
//!
//! ```text
//! accelerate-selftest                                         # 1 process
//! accelerate launch --num_processes 2 accelerate-selftest     # N processes
//! ```
//!
//! It goes through stages. Every rank computes by itself what a stage has to give and compares; what
//! is wrong on one rank fails the stage for all. No stage can hang for ever: when its time is over,
//! every rank tells where it is and for whom it waits, and the program ends with code 3.
//!
//! | file | room for |
//! | --- | --- |
//! | `stage`, `stages` | what is tried out |
//! | `probe` | what a stage works with: the accelerator, and comparisons |
//! | `runner` | the order of things, and how ranks agree on a result |
//! | `board` | the store in which ranks leave notes for each other |
//! | `watch` | signs of life, deadlines, and the report of a hang |
//! | `report` | what is told, as text or as JSON |
//!
//! Exit codes: 0 all stages passed, 1 one failed, 2 a wrong command line, 3 the time was over.
#![forbid(unsafe_code)]

mod arguments;
mod board;
mod breakage;
mod failure;
mod perceptron;
mod probe;
mod report;
mod runner;
mod stage;
mod stages;
mod watch;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;

use clap::Parser as _;

use arguments::Arguments;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_log();
    match runner::run(&arguments) {
        Ok(code) => code,
        Err(failure) => {
            report::complain(&format!("error: {}", failure.describe()));
            failure.exit_code()
        }
    }
}

/// Warnings of the library, such as those about ranks that do not come, go to standard error.
fn start_log() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .init();
}
