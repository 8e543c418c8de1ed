//! Continues prompts, each rank a part of them, and prints all texts once, in order.
//!
//! ```text
//! distributed_inference --model FOLDER                                # 1 process
//! accelerate launch --cpu --num_processes 2 distributed_inference ... # N processes
//! ```

#![forbid(unsafe_code)]

mod arguments;
mod generation;

use std::process::ExitCode;

use accelerate_examples::failure::exit_code;
use clap::Parser;

use arguments::Arguments;

fn main() -> ExitCode {
    exit_code(generation::run(&Arguments::parse()))
}
