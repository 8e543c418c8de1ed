//! `accelerate config`: asks how programs are to run, and writes the answers into a file that
//! `accelerate launch` reads, as does the original.
//!
//! [`ask`] puts questions, [`cluster`] and [`sagemaker`] know which ones, [`save`] writes the file.
//! The subcommands need no answers: [`default`] looks at the machine, [`update`] rewrites a file.
//! [`to_fsdp2`] is a command of its own.

mod ask;
mod cluster;
mod default;
mod device_summary;
mod error;
mod record;
mod sagemaker;
mod save;
pub(crate) mod to_fsdp2;
mod update;

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use accelerate_plan::{MixedPrecision, config::Value};
use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser as _},
};

use crate::{
    configuration::{ShowArgs, show},
    report,
};
use ask::{Ask, question};
#[cfg(test)]
use device_summary::DeviceKind;
use device_summary::DeviceSummary;
pub(crate) use error::ConfigCommandError;
use error::Result;
use save::Target;

/// What a shell shows for a command that Ctrl-C ended: 128 + SIGINT.
const CANCELLED: u8 = 130;

/// What was typed after `accelerate config`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Without a terminal the answers are read from standard input: one line per \
                  question, an empty line for the default, the number (from 0) or the text of an \
                  option for a menu."
)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    action: Option<Action>,

    /// Where to save the file, as JSON if the name ends in `.json` [default: `HF_HOME` or
    /// `~/.cache/huggingface`, then `accelerate/default_config.yaml`]
    #[arg(long = "config_file", value_name = "FILE")]
    config_file: Option<PathBuf>,
}

/// What is to be done instead of asking.
#[derive(Debug, Subcommand)]
enum Action {
    /// Write a file that fits this machine, without asking
    Default(DefaultArgs),
    /// Rewrite a file with all entries of this version
    Update(UpdateArgs),
    /// Show every setting that a launch would have, and where it comes from
    Show(Box<ShowArgs>),
}

/// What was typed after `accelerate config default`.
#[derive(Debug, Args)]
struct DefaultArgs {
    /// Where to save the file [default: `HF_HOME` or `~/.cache/huggingface`, then
    /// `accelerate/default_config.yaml`]
    #[arg(long = "config_file", value_name = "FILE")]
    config_file: Option<PathBuf>,

    /// Lower precision to compute in
    #[arg(
        long = "mixed_precision",
        value_name = "PRECISION",
        default_value = "no",
        value_parser = default_precision()
    )]
    mixed_precision: MixedPrecision,
}

/// What was typed after `accelerate config update`.
#[derive(Debug, Args)]
struct UpdateArgs {
    /// The file to rewrite [default: `HF_HOME` or `~/.cache/huggingface`, then
    /// `accelerate/default_config.yaml`]
    #[arg(long = "config_file", value_name = "FILE")]
    config_file: Option<PathBuf>,
}

/// Asks, or does what the subcommand says.
pub(crate) fn run(args: &ConfigArgs) -> Result<ExitCode> {
    match &args.action {
        Some(Action::Default(args)) => default::run(args, DeviceSummary::read()?),
        Some(Action::Update(args)) => update::run(args),
        Some(Action::Show(args)) => Ok(show(args)?),
        None => {
            let target = Target::new(args.config_file.as_deref())?;
            match interview(&mut *ask::for_this_process(), DeviceSummary::read()?) {
                Err(ConfigCommandError::Cancelled) => {
                    report::note("cancelled: nothing was written", &[]);
                    Ok(ExitCode::from(CANCELLED))
                }
                Err(error) => Err(error),
                Ok(record) => {
                    target.write(&save::render(record, target.path()))?;
                    tell_saved(target.path());
                    Ok(ExitCode::SUCCESS)
                }
            }
        }
    }
}

/// All questions, in order.
fn interview(ask: &mut dyn Ask, devices: DeviceSummary) -> Result<Value> {
    let q = question(
        "Where do programs run?",
        "on this machine and its neighbours, or as jobs of Amazon SageMaker",
    );
    let record = match ask.menu(q, &["This machine", "AWS (Amazon SageMaker)"], 0)? {
        0 => cluster::interview(ask, devices)?,
        _ => sagemaker::interview(ask)?,
    };
    Ok(record.into())
}

/// The precisions that need no further settings.
fn default_precision() -> impl clap::builder::TypedValueParser<Value = MixedPrecision> {
    PossibleValuesParser::new(["no", "fp16", "bf16"]).try_map(|name| name.parse::<MixedPrecision>())
}

fn tell_saved(path: &Path) {
    tell(&format!("configuration saved at {}\n", path.display()));
}

/// Tells the outcome on stdout. Nobody is left to be told if that fails.
fn tell(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}
