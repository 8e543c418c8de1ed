//! `cargo xtask bench-peers`: the same job by the original and by ours, in turns, as ratios.

mod big_models;
mod checkpoint;
mod command_line;
mod measurement;
mod merge_weights;
mod models;
mod numbers;
mod parts;
mod report;
mod sharded;
mod training_core;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::demo;
use crate::failure::Failure;
use crate::python_env::PythonEnv;
use crate::setup;
use crate::step::{self, step};
use crate::workspace::Workspace;

use measurement::{Pair, Run, rank_file};
use report::Table;

/// What both sides are told, besides where to write their numbers.
const ARGUMENTS: [&str; 4] = [
    "--model",
    ".data/minilm",
    "--data",
    ".data/movie-reviews/movieReviewSnippets_GroundTruth.txt",
];

/// How often each side runs where nobody says.
const ROUNDS: u32 = 3;

/// How many processes each side runs on.
const RANKS: usize = 2;

/// The original's side of the job.
const PEER_SCRIPT: &str = "tests/parity/bench_peer.py";

/// The seconds since 1970 at which a run was started, which its first step is counted from.
const START_VARIABLE: &str = "ACCELERATE_BENCH_T0";

/// What `bench-peers` can be told.
#[derive(Debug, Clone, clap::Args)]
#[command(group = clap::ArgGroup::new("subject").multiple(false).args(["command_line", "training_core", "models", "checkpoint", "merge_weights", "sharded", "big_models"]))]
pub(crate) struct Options {
    /// How often each side runs [default: 3, 10 for the command line, 5 for the training core].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Measure how fast commands answer instead.
    #[arg(long, alias = "command_line")]
    command_line: bool,
    /// Measure the parts of a training loop one by one instead.
    #[arg(long, alias = "training_core")]
    training_core: bool,
    /// Measure models one by one instead: training steps, generation, start.
    #[arg(long)]
    models: bool,
    /// Measure saving and loading the state of a training instead.
    #[arg(long)]
    checkpoint: bool,
    /// Measure how shards of weights are merged instead.
    #[arg(long, alias = "merge_weights")]
    merge_weights: bool,
    /// Measure training on two processes instead, in shards and whole.
    #[arg(long)]
    sharded: bool,
    /// Measure a Llama of 3.1 GB instead: start, offload, prefetch, stages on two processes.
    #[arg(long, alias = "big_models")]
    big_models: bool,
    /// How large the model is that is trained in shards [default: small].
    #[arg(long, value_enum, requires = "sharded")]
    size: Option<sharded::Size>,
    /// How many megabytes are saved or merged [default: 2400 of weights and moments, 800 of shards].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    megabytes: Option<u32>,
    /// How many training steps each run makes.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(2..))]
    max_steps: u32,
    /// Put the table into `docs/performance.md`.
    #[arg(long)]
    write: bool,
}

/// Runs both sides in turns and prints the ratios.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    let megabytes = |usual| options.megabytes.unwrap_or(usual);
    let (which, table) = if options.command_line {
        let rounds = options.rounds.unwrap_or(command_line::ROUNDS);
        (
            Table::CommandLine,
            command_line::measure(workspace, rounds)?,
        )
    } else if options.training_core {
        let rounds = options.rounds.unwrap_or(training_core::ROUNDS);
        (
            Table::TrainingCore,
            training_core::measure(workspace, rounds)?,
        )
    } else if options.models {
        let rounds = options.rounds.unwrap_or(models::ROUNDS);
        (Table::Models, models::measure(workspace, rounds)?)
    } else if options.checkpoint {
        let rounds = options.rounds.unwrap_or(checkpoint::ROUNDS);
        (
            Table::Checkpoint,
            checkpoint::measure(workspace, rounds, megabytes(checkpoint::MEGABYTES))?,
        )
    } else if options.merge_weights {
        let rounds = options.rounds.unwrap_or(merge_weights::ROUNDS);
        (
            Table::MergeWeights,
            merge_weights::measure(workspace, rounds, megabytes(merge_weights::MEGABYTES))?,
        )
    } else if options.sharded {
        let rounds = options.rounds.unwrap_or(sharded::ROUNDS);
        let size = options.size.unwrap_or(sharded::Size::Small);
        (Table::Sharded, sharded::measure(workspace, rounds, size)?)
    } else if options.big_models {
        let rounds = options.rounds.unwrap_or(big_models::ROUNDS);
        (Table::BigModels, big_models::measure(workspace, rounds)?)
    } else {
        (Table::Job, job(workspace, options)?)
    };
    println!("\n{table}");
    if options.write {
        report::write(&workspace.path("docs/performance.md"), which, &table)?;
    }
    Ok(())
}

/// The training job on both sides, as a table.
fn job(workspace: &Workspace, options: &Options) -> Result<String, Failure> {
    setup::run(workspace)?;
    let env = PythonEnv::set_up(workspace)?;
    demo::build(workspace)?;
    let target = workspace.metadata()?.target_dir;
    let folder = target.join("bench-peers");
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::because(format!("cannot make `{}`", folder.display()), error))?;
    let bench = Bench {
        workspace,
        env: &env,
        binaries: target.join("release"),
        folder,
        max_steps: options.max_steps,
    };
    let pairs = (0..options.rounds.unwrap_or(ROUNDS))
        .map(|round| bench.round(round))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(report::table(&pairs))
}

struct Bench<'a> {
    workspace: &'a Workspace,
    env: &'a PythonEnv,
    binaries: PathBuf,
    folder: PathBuf,
    max_steps: u32,
}

impl Bench<'_> {
    /// One run of each side; which goes first alternates, so that a warming machine favours none.
    fn round(&self, round: u32) -> Result<Pair, Failure> {
        let ours = || self.measure(&format!("round {}, ours", round + 1), self.ours());
        let original = || {
            self.measure(
                &format!("round {}, the original", round + 1),
                self.original(),
            )
        };
        if round.is_multiple_of(2) {
            let ours = ours()?;
            Ok(Pair {
                ours,
                original: original()?,
            })
        } else {
            let original = original()?;
            Ok(Pair {
                ours: ours()?,
                original,
            })
        }
    }

    fn ours(&self) -> Command {
        demo::launch(&self.binaries)
    }

    /// PyTorch's own launcher: the original's starts one process only where no MPI is set up.
    fn original(&self) -> Command {
        let mut command = Command::new(self.env.program("torchrun"));
        command.args(["--nproc_per_node", "2", PEER_SCRIPT]);
        command
            .env("HF_HUB_OFFLINE", "1")
            .env("TOKENIZERS_PARALLELISM", "false");
        command
    }

    fn measure(&self, name: &str, mut command: Command) -> Result<Run, Failure> {
        let file = self.folder.join("run");
        for rank in 0..RANKS {
            remove_old(&rank_file(&file, rank))?;
        }
        command
            .args(ARGUMENTS)
            .args(["--max-steps", &self.max_steps.to_string()])
            .arg("--bench-json")
            .arg(&file)
            .current_dir(self.workspace.path(""))
            .env("OMP_NUM_THREADS", "1");
        step(name, || {
            step::run(command.env(START_VARIABLE, seconds_now().to_string()))?;
            Run::read(&file, RANKS)
        })
    }
}

/// A file of an earlier run must not be taken for this run's.
fn remove_old(file: &Path) -> Result<(), Failure> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::because(
            format!("cannot remove `{}`", file.display()),
            error,
        )),
        _ => Ok(()),
    }
}

fn seconds_now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}
