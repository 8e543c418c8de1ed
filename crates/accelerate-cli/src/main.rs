//! The command `accelerate`.
//!
//! It links no tensor library and answers in milliseconds. Data goes to stdout, everything that is
//! said to a person to stderr. Exit codes: 0 success, 1 an error of the user or of a process, 2 a
//! wrong command line, 70 an error of this program; `launch` passes on the code of the first process
//! that failed.
#![forbid(unsafe_code)]

mod args;
mod error;
mod launch;
mod report;

use std::{env, ffi::OsString, process::ExitCode};

use args::Command;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().collect();
    if let Some(order) = launch::keeper::Order::from_arguments(&arguments) {
        return launch::keeper::run(&order);
    }
    match args::parse(arguments) {
        Ok(Command::Launch(launch)) => match launch::run(&launch) {
            Ok(code) => code,
            Err(error) => {
                report::error(&error);
                error.exit_code()
            }
        },
        Err(answer) => answer.show(),
    }
}
