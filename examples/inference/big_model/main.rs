//! Generates text with a model that may be larger than memory.
//!
//! ```text
//! cargo run --release --bin big_model -- --model FOLDER --prompt "Alice was"
//! cargo run --release --bin big_model -- --model FOLDER --max_memory "cpu=1GB"   # the rest on disk
//! ```
//!
//! Weights are used where they lie in the mapped files of the model; those that a device map has on
//! disk come while the blocks before them compute.

#![forbid(unsafe_code)]

mod arguments;
mod generation;
mod measurement;

use std::process::ExitCode;
use std::time::Instant;

use accelerate_examples::failure::exit_code;
use clap::Parser;

use arguments::Arguments;

fn main() -> ExitCode {
    let start = Instant::now();
    exit_code(generation::run(&Arguments::parse(), start))
}
