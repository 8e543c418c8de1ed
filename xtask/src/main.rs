//! `cargo xtask`: set-up, checks, tests, the demo, and comparisons with the original.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    reason = "talking to the terminal is what a task does"
)]
#![expect(
    clippy::print_stderr,
    reason = "talking to the terminal is what a task does"
)]

mod bench;
mod big_models;
mod check;
mod check_cuda;
mod demo;
mod failure;
mod memory_limit;
mod parity;
mod private_memory;
mod python;
mod python_env;
mod random_model;
mod release;
mod setup;
mod step;
mod test;
mod unsafe_rule;
mod verify_resume;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;
use crate::workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about, version)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Put a CPU libtorch under `.libtorch` and the demo's model and text under `.data`.
    Setup {
        /// Put them into this folder instead of the workspace.
        #[arg(long, hide = true)]
        into: Option<PathBuf>,
    },
    /// Check formatting, lints, docs and the layering rules, cheapest first.
    Check,
    /// Set up, check, build and run all tests.
    Test,
    /// Set up, build, and train the sentiment example on 2 processes.
    Demo,
    /// Record the fixtures again with Python and compare, then run the tests that mix in Python or
    /// drive a browser.
    Parity,
    /// Run the same job with the original and with ours, in turns, and print the ratios.
    BenchPeers(bench::Options),
    /// Stop the examples in the middle, start them again, and compare with runs that never stopped;
    /// kill a saving process 200 times.
    VerifyResume,
    /// Generate with models larger than the memory that they get, and compare.
    BigModels(big_models::Options),
    /// Write a model of made-up weights, as public checkpoints are.
    RandomModel(random_model::Options),
    /// Compile and link everything, NCCL included, against a CUDA libtorch; needs no GPU.
    CheckCuda,
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprint!("{}", failure.render());
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<(), Failure> {
    let workspace = Workspace::new();
    match task {
        Task::Setup { into } => setup::run(&into.map_or(workspace, Workspace::at)),
        Task::Check => check::run(&workspace),
        Task::Test => test::run(&workspace),
        Task::Demo => demo::run(&workspace),
        Task::Parity => parity::run(&workspace),
        Task::BenchPeers(options) => bench::run(&workspace, &options),
        Task::VerifyResume => verify_resume::run(&workspace),
        Task::BigModels(options) => big_models::run(&workspace, &options),
        Task::RandomModel(options) => random_model::run(&workspace, &options),
        Task::CheckCuda => check_cuda::run(&workspace),
    }
}
