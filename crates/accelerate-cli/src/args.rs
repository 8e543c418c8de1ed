//! The command line: flags, and how they are spelled.

mod settings_flags;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{
    Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
    error::{ContextKind, ErrorKind},
};

pub(crate) use settings_flags::SettingsFlags;

use crate::{
    config_command::{ConfigArgs, to_fsdp2::ToFsdp2Args},
    dashboard::DashboardArgs,
    environment_report::EnvArgs,
    estimate::{args::EstimateArgs, plan::args::PlanArgs},
    launch::streams::Streams,
    manual::{CompletionsArgs, ManArgs},
    self_test::TestArgs,
    verify_resume::VerifyResumeArgs,
    watch::WatchArgs,
    weights::{convert::ConvertArgs, diff::DiffArgs, inspect::InspectArgs, merge::MergeArgs},
};

#[derive(Debug, Parser)]
#[command(
    name = "accelerate",
    version,
    about = "Runs training programs on any hardware"
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer questions, and save the answers in a file that `launch` reads
    Config(ConfigArgs),
    /// Estimate the memory that a model takes to load and to train
    EstimateMemory(Box<EstimateArgs>),
    /// Tell which ways of running and training a model fit given devices
    Plan(Box<PlanArgs>),
    /// Tell what a report about a fault should say about this machine
    Env(EnvArgs),
    /// Start a program on one or more processes, on this machine or on several
    Launch(Box<LaunchArgs>),
    /// Put the weights that several processes saved in shards together
    MergeWeights(MergeArgs),
    /// Convert weights: safetensors, torch files, distributed checkpoints; other types, other shards
    Convert(ConvertArgs),
    /// Show what is in a file or folder of weights, without loading it
    Inspect(InspectArgs),
    /// Compare two checkpoints tensor by tensor
    Diff(DiffArgs),
    /// Show a run in the terminal: its curves, its ranks, what they wait for
    Watch(WatchArgs),
    /// Serve a page on this machine that shows and compares runs
    Dashboard(DashboardArgs),
    /// Try out everything the library does between processes, stage by stage
    Test(TestArgs),
    /// Stop a program, start it again, and compare what it does with an uninterrupted run
    VerifyResume(VerifyResumeArgs),
    /// Convert a config file for FSDP 1 into one for FSDP 2
    ToFsdp2(ToFsdp2Args),
    /// Write the completions of a shell to standard output
    Completions(CompletionsArgs),
    /// Write man pages
    Man(ManArgs),
}

/// What was typed after `accelerate launch`.
#[derive(Debug, Args)]
#[command(
    after_help = "`--help` shows the flags of every group; `--use_fsdp -h`, `--fp8_backend te -h` \
                  and the like add one group to this page.",
    after_long_help = "Every flag may be written with `-` in the place of `_`. The flags of a \
                       launch may stand in a config file too: see `accelerate config`."
)]
pub(crate) struct LaunchArgs {
    /// Config file to use instead of the default one
    #[arg(long = "config_file", value_name = "PATH")]
    pub(crate) config_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) settings: SettingsFlags,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Explain what would be started, and start nothing
    #[arg(long = "dry_run", help_heading = "Program")]
    pub(crate) dry_run: bool,

    /// Run a Python module instead of a file
    #[arg(short, long, help_heading = "Program")]
    pub(crate) module: bool,

    /// Run the program as it is, whatever its name looks like
    #[arg(long = "no_python", help_heading = "Program")]
    pub(crate) no_python: bool,

    /// Say nothing about chosen values and failed processes
    #[arg(short, long, help_heading = "Output and ends")]
    pub(crate) quiet: bool,

    /// Program (an executable or a Python script), then its arguments, passed on as they are
    #[arg(
        required = true,
        trailing_var_arg = true,
        help_heading = None::<&'static str>,
        value_name = "PROGRAM [ARGUMENTS]"
    )]
    pub(crate) command: Vec<OsString>,
}

/// How processes are watched and what becomes of their output.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output and ends")]
pub(crate) struct OutputArgs {
    /// Seconds that processes have to end after SIGTERM, before SIGKILL
    #[arg(
        long = "grace_period",
        value_name = "SECONDS",
        default_value = "30",
        allow_negative_numbers = true,
        value_parser = seconds
    )]
    pub(crate) grace_period: Duration,

    /// End the job after this many seconds and tell what each rank was doing
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Also write the output of each rank to files below this folder
    #[arg(long = "log_dir", value_name = "FOLDER")]
    pub(crate) log_dir: Option<PathBuf>,

    /// Streams that get files: 0 none, 1 stdout, 2 stderr, 3 both, for all ranks or as
    /// `RANK:STREAMS,...`
    #[arg(short, long, value_name = "STREAMS")]
    pub(crate) tee: Option<Streams>,

    /// Write how the job ended as JSON into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// Show the run on the terminal while the job goes on, as `accelerate watch` does; it is looked
    /// for below this folder
    #[arg(
        long,
        value_name = "FOLDER",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "."
    )]
    pub(crate) watch: Option<PathBuf>,

    /// Show only the output of these local ranks
    #[arg(
        long = "local_ranks_filter",
        value_name = "RANK,...",
        value_delimiter = ','
    )]
    pub(crate) local_ranks_filter: Option<Vec<usize>>,

    /// Do not put `node:rank` before each line of several processes
    #[arg(long = "no_prefix")]
    pub(crate) no_prefix: bool,
}

/// An answer that ends the command before it began: help, the version, or what is wrong.
pub(crate) enum Answer {
    Clap(clap::Error),
    Overview,
}

impl Answer {
    pub(crate) fn show(self) -> ExitCode {
        match self {
            Self::Clap(error) => {
                // Nobody is left to be told if printing fails.
                let _ = error.print();
                u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
            }
            Self::Overview => {
                let _ = command().print_help();
                ExitCode::FAILURE
            }
        }
    }
}

/// Reads the command line; the first argument is the name of the program.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Command, Answer> {
    let arguments = expand_alias(arguments);
    let matches = command()
        .mut_subcommand("launch", |launch| {
            settings_flags::show_asked(launch, &arguments)
        })
        .try_get_matches_from(&arguments)
        .map_err(|error| Answer::Clap(without_wrong_tip(error, &arguments)))?;
    let cli = Cli::from_arg_matches(&matches).map_err(Answer::Clap)?;
    cli.command.ok_or(Answer::Overview)
}

/// After `launch`, a word that nobody knows is no word for the program: that comes first.
fn without_wrong_tip(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let is_launch = arguments.get(1).is_some_and(|word| word == "launch");
    if is_launch && error.kind() == ErrorKind::UnknownArgument {
        error.remove(ContextKind::Suggested);
    }
    error
}

/// The command as `clap` sees it. Every flag may be written with `_` or with `-`, and the last one
/// of a kind wins.
pub(crate) fn command() -> clap::Command {
    fn with_dashes(command: clap::Command) -> clap::Command {
        command
            .mut_subcommands(with_dashes)
            .args_override_self(true)
            .mut_args(|arg| {
                let names = arg.get_long().into_iter();
                let names = names.chain(arg.get_all_aliases().unwrap_or_default());
                let dashed = names.filter(|name| name.contains('_'));
                let dashed: Vec<_> = dashed.map(|name| name.replace('_', "-")).collect();
                arg.aliases(dashed)
            })
    }
    Cli::command().mut_subcommands(with_dashes)
}

/// A link named `accelerate-launch` is `accelerate launch`.
fn expand_alias(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let name = arguments.first().map(Path::new).and_then(Path::file_stem);
    if let Some(subcommand) = name.and_then(|name| name.to_str()?.strip_prefix("accelerate-")) {
        let subcommand = subcommand.into();
        // The first word is the name in help texts.
        arguments.splice(..1, [OsString::from("accelerate"), subcommand]);
    }
    arguments
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map(Duration::try_from_secs_f64);
    match seconds {
        Ok(Ok(duration)) => Ok(duration),
        _ => Err("expected a number of seconds, at least 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use accelerate_plan::config::Value;

    use super::*;

    fn launch(arguments: &[&str]) -> Option<LaunchArgs> {
        let words = ["accelerate", "launch"]
            .iter()
            .chain(arguments)
            .map(OsString::from);
        match parse(words.collect()) {
            Ok(Command::Launch(launch)) => Some(*launch),
            Ok(_) | Err(_) => None,
        }
    }

    fn given(args: &LaunchArgs, name: &str) -> Option<Value> {
        args.settings.0.get(name).map(|given| given.value.clone())
    }

    #[test]
    fn clap_finds_no_fault_in_the_definition() {
        command().debug_assert();
    }

    #[test]
    fn underscores_and_dashes_mean_the_same() {
        let args = launch(&["--num-processes=3", "--main_process_port", "5", "prog"]).unwrap();
        assert_eq!(given(&args, "num_processes"), Some(3.into()));
        assert_eq!(given(&args, "main_process_port"), Some(5.into()));
        let args = launch(&["--num_processes", "3", "--num_processes", "4", "prog"]).unwrap();
        assert_eq!(
            given(&args, "num_processes"),
            Some(4.into()),
            "the last one wins"
        );
        assert!(
            launch(&["--num_proc", "3", "prog"]).is_none(),
            "no abbreviations"
        );
        assert!(
            launch(&["--main_process-port", "5", "prog"]).is_none(),
            "no mixtures"
        );
    }

    #[test]
    fn everything_after_the_program_is_its_own() {
        let args = launch(&["--cpu", "prog", "--debug", "-h", "--", "--cpu"]).unwrap();
        assert_eq!(args.command, ["prog", "--debug", "-h", "--", "--cpu"]);
        assert_eq!(given(&args, "cpu"), Some(true.into()));
        assert_eq!(given(&args, "debug"), None);
        let args = launch(&["--cpu", "--", "prog", "--quiet"]).unwrap();
        assert_eq!(args.command, ["prog", "--quiet"]);
    }

    #[test]
    fn wrong_values_are_refused() {
        for wrong in [
            ["--num_processes", "0", "prog"],
            ["--num_processes", "two", "prog"],
            ["--mixed_precision", "fp64", "prog"],
            ["--main_process_port", "70000", "prog"],
            ["--grace_period", "-1", "prog"],
            ["--unknown", "1", "prog"],
        ] {
            assert!(launch(&wrong).is_none(), "{wrong:?}");
        }
        assert!(launch(&["--cpu"]).is_none(), "a program is needed");
    }

    #[test]
    fn the_name_of_the_link_chooses_the_subcommand() {
        let words = ["/usr/bin/accelerate-launch", "prog"].map(OsString::from);
        assert!(matches!(parse(words.to_vec()), Ok(Command::Launch(_))));
        let words = ["accelerate-merge-weights", "in", "out"].map(OsString::from);
        assert!(matches!(
            parse(words.to_vec()),
            Ok(Command::MergeWeights(_))
        ));
    }
}
