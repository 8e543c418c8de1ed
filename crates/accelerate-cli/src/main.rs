//! The command `accelerate`.
//!
//! It links no tensor library and answers in milliseconds. Data goes to stdout, everything that is
//! said to a person to stderr. Exit codes: 0 success, 1 an error of the user or of a process, 2 a
//! wrong command line, 70 an error of this program; `launch` passes on the code of the first process
//! that failed, and 75 where all of them saved and left because they were asked to end.
#![forbid(unsafe_code)]

mod args;
mod child;
mod config_command;
mod configuration;
mod dashboard;
mod dtype_sum;
mod environment_report;
mod error;
mod estimate;
mod launch;
mod machine;
mod manual;
mod plain_text;
mod report;
mod runs;
mod self_test;
mod verify_resume;
mod watch;
mod weights;

use std::{env, error::Error as StdError, ffi::OsString, process::ExitCode};

use accelerate_plan::Hint;
use args::Command;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().collect();
    if let Some(order) = launch::keeper::Order::from_arguments(&arguments) {
        return launch::keeper::run(&order);
    }
    match args::parse(arguments) {
        Ok(command) => run(command),
        Err(answer) => answer.show(),
    }
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::Config(args) => finish(config_command::run(&args), |error| error.exit_code()),
        Command::EstimateMemory(args) => finish(estimate::run(&args), |error| error.exit_code()),
        Command::Plan(args) => finish(estimate::plan::run(&args), |error| error.exit_code()),
        Command::Env(args) => finish(environment_report::run(&args), |error| error.exit_code()),
        Command::Launch(args) => finish(launch::run(&args), |error| error.exit_code()),
        Command::MergeWeights(args) => {
            finish(weights::merge::run(&args), |error| error.exit_code())
        }
        Command::Convert(args) => finish(weights::convert::run(&args), |error| error.exit_code()),
        Command::Inspect(args) => finish(weights::inspect::run(&args), |error| error.exit_code()),
        // As `diff` has it: 1 says that the two differ.
        Command::Diff(args) => finish(weights::diff::run(&args), |_| {
            ExitCode::from(weights::diff::FAILED)
        }),
        Command::Watch(args) => finish(watch::run(&args), |error| error.exit_code()),
        Command::Dashboard(args) => finish(dashboard::run(&args), |error| error.exit_code()),
        Command::Test(args) => finish(self_test::run(&args), |error| error.exit_code()),
        Command::ToFsdp2(args) => finish(config_command::to_fsdp2::run(&args), |error| {
            error.exit_code()
        }),
        Command::VerifyResume(args) => finish(verify_resume::run(&args), |error| error.exit_code()),
        Command::Completions(args) => manual::completions(&args, args::command()),
        Command::Man(args) => finish(manual::man(&args, args::command()), |_| ExitCode::FAILURE),
    }
}

/// Shows an error; the exit code says whose it is.
fn finish<E: StdError + Hint>(
    outcome: Result<ExitCode, E>,
    exit_code: impl FnOnce(&E) -> ExitCode,
) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        report::error(&error);
        exit_code(&error)
    })
}
