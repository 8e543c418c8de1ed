//! `accelerate env`: what a report about a fault should say about this machine.
//!
//! The lines are those of the original, so that whoever reads reports finds them where they always
//! were. Everything is read from files: no Python is started, and no tensor library is loaded.

mod facts;
mod json;
mod libtorch;
mod platform;
mod python;
mod python_text;
mod text;

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use accelerate_plan::{Hint, env::Environment, settings::Layer};
use clap::Args;

use self::facts::Facts;
use crate::{
    configuration::{Configuration, ConfigurationError},
    machine::Root,
};

/// What was typed after `accelerate env`.
#[derive(Debug, Args)]
pub(crate) struct EnvArgs {
    /// Show this config file instead of the default one
    #[arg(long = "config_file", value_name = "FILE")]
    pub(crate) config_file: Option<PathBuf>,

    /// Write one JSON object instead of lines
    #[arg(long)]
    pub(crate) json: bool,
}

/// Why the report could not be given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum EnvError {
    /// A variable cannot be read.
    #[error("cannot look at the machine")]
    Variable(#[from] accelerate_plan::Error),

    /// The config file cannot be shown.
    #[error(transparent)]
    Config(#[from] ConfigurationError),

    /// Nobody took the text.
    #[error("cannot write to the standard output")]
    Output(#[from] io::Error),
}

impl EnvError {
    /// 1: the user can change both.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::FAILURE
    }
}

impl Hint for EnvError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Variable(error) => error.hint(),
            Self::Config(error) => error.hint(),
            Self::Output(_) => None,
        }
    }
}

/// Writes the report to stdout, with the config file in force at its end.
///
/// # Errors
/// If something cannot be read, or nobody takes the text.
pub(crate) fn run(args: &EnvArgs) -> Result<ExitCode, EnvError> {
    let env = Environment::from_process();
    let named = args.config_file.as_deref();
    let configuration = Configuration::read(&Layer::default(), named, &env)?;
    let record = configuration.record();
    let config = record.as_ref();
    let facts = Facts::gather(&Root::machine(), &env)?;
    let report = match args.json {
        true => json::render(&facts, config),
        false => text::render(&facts, configuration.file_is_named(), config),
    };
    match io::stdout().lock().write_all(report.as_bytes()) {
        // Whoever reads has seen enough, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}
