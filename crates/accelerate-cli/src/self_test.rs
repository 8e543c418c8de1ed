//! `accelerate test`: runs the self-test program as `accelerate launch` would run any other.
//!
//! The program is a package of its own, since it links the tensor library and this one does not:
//! [`program`] finds it, or the test script of an installed Python package. It is started by
//! this executable's own `launch`, so that a configuration means the same here and there.

mod error;
mod program;
mod python;

use std::{
    env, ffi::OsString, iter, num::NonZeroUsize, path::PathBuf, process::Command, process::ExitCode,
};

use accelerate_plan::env::{Environment, PYTHON_EXEC};
use clap::Args;

pub(crate) use error::SelfTestError;

use crate::{child, launch::Exit, report};

/// What was typed after `accelerate test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Configuration file, as for `accelerate launch`
    #[arg(long = "config_file", value_name = "FILE")]
    config_file: Option<PathBuf>,

    /// Stay on the CPU
    #[arg(long)]
    cpu: bool,

    /// Number of processes, as for `accelerate launch`
    #[arg(long = "num_processes", value_name = "N", value_parser = count)]
    num_processes: Option<NonZeroUsize>,

    /// Seconds that each stage of the test may take [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<String>,

    /// Print one JSON object per stage
    #[arg(long, conflicts_with = "python")]
    json: bool,

    /// Run the test script of the Python package `accelerate` that this interpreter has; without a
    /// value, that `accelerate launch` would use
    #[arg(
        long,
        value_name = "INTERPRETER",
        num_args = 0..=1,
        require_equals = true,
        conflicts_with = "timeout"
    )]
    python: Option<Option<PathBuf>>,

    /// More options for `accelerate launch`, after `--`
    #[arg(last = true, value_name = "LAUNCH OPTIONS")]
    launch_options: Vec<OsString>,
}

/// Finds the self-test, launches it, and tells how it ended.
pub(crate) fn run(args: &TestArgs) -> Result<ExitCode, SelfTestError> {
    let env = Environment::from_process();
    let launcher = env::current_exe().map_err(|source| SelfTestError::Launcher { source })?;
    let (program, interpreter) = match &args.python {
        None => (program::find(&launcher, &env)?, None),
        Some(chosen) => {
            let interpreter = python::interpreter(chosen.as_deref(), &env)?;
            (python::test_script(&interpreter)?, Some(interpreter))
        }
    };
    let mut arguments = launch_arguments(args);
    arguments.push(program.into_os_string());
    arguments.extend(program_arguments(args));
    let words = arguments.iter().map(OsString::as_os_str);
    let shown = report::command(iter::once("accelerate".as_ref()).chain(words));
    report::say(&format!("\nRunning: {shown}\n"));

    let mut command = Command::new(&launcher);
    command.args(&arguments);
    if let Some(interpreter) = interpreter {
        command.env(PYTHON_EXEC.name(), interpreter);
    }
    let exit = child::run(command).map_err(|source| SelfTestError::Start {
        command: shown.clone(),
        source,
    })?;
    match exit {
        Exit::Code(0) => {
            report::say(
                "The self-test passed: programs can be launched with this configuration.\n",
            );
            Ok(ExitCode::SUCCESS)
        }
        exit => Err(SelfTestError::Failed {
            command: shown,
            exit,
        }),
    }
}

fn launch_arguments(args: &TestArgs) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["launch".into()];
    if let Some(file) = &args.config_file {
        arguments.extend(["--config_file".into(), file.clone().into_os_string()]);
    }
    if args.cpu {
        arguments.push("--cpu".into());
    }
    if let Some(processes) = args.num_processes {
        arguments.extend(["--num_processes".into(), processes.to_string().into()]);
    }
    if args.python.is_none() {
        // The program says itself which rank speaks.
        arguments.push("--no_prefix".into());
    }
    arguments.extend(args.launch_options.iter().cloned());
    arguments
}

fn program_arguments(args: &TestArgs) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    if let Some(timeout) = &args.timeout {
        arguments.extend(["--stage_timeout".into(), timeout.into()]);
    }
    if args.json {
        arguments.push("--json".into());
    }
    arguments
}

fn count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse()
        .map_err(|_| "expected a whole number, at least 1".to_owned())
}

/// The text of a time above zero, which the program reads again.
fn seconds(text: &str) -> Result<String, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds.is_finite() => Ok(text.to_owned()),
        _ => Err("expected a number of seconds above 0".to_owned()),
    }
}
