//! Runs a language model that is cut into stages, one on each rank, and prints what most likely
//! follows each prompt.
//!
//! ```text
//! pipelined_inference --model FOLDER                                # 1 process: the whole model
//! accelerate launch --cpu --num_processes 2 pipelined_inference ... # N processes: N stages
//! ```

#![forbid(unsafe_code)]

mod arguments;
mod batch;
mod running;

use std::process::ExitCode;

use accelerate_examples::failure::exit_code;
use clap::Parser;

use arguments::Arguments;

fn main() -> ExitCode {
    exit_code(running::run(&Arguments::parse()))
}
