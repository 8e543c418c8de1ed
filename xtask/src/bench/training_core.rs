//! The parts of a training loop one by one: loader, step, gathering of metrics, accumulation.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::python_env::PythonEnv;
use crate::setup;
use crate::step::{self, step};
use crate::workspace::Workspace;

use super::measurement::{median, rank_file};
use super::numbers::Numbers;
use super::remove_old;
use super::report::{machine, ratio_cells};

/// How often each side runs where nobody says.
pub(super) const ROUNDS: u32 = 5;

/// What has to be built.
const BUILD: [&str; 10] = [
    "build",
    "--release",
    "--package",
    "accelerate-cli",
    "--bin",
    "accelerate",
    "--package",
    "accelerate-rs",
    "--example",
    "training_core",
];

/// The original's side.
const PEER_SCRIPT: &str = "tests/parity/bench_training_core.py";

/// What the two programs are asked for, and on how many processes.
const PARTS: [(&str, usize); 4] = [("loader", 1), ("step", 1), ("gather", 2), ("accumulate", 2)];

/// One line of the table: what each side calls the number, and what is wanted of it.
struct Row {
    name: &'static str,
    ours: &'static str,
    original: &'static str,
    unit: Unit,
    goal: Goal,
}

/// In what a number is shown.
#[derive(Clone, Copy)]
enum Unit {
    Milliseconds,
    Microseconds,
    Bytes,
}

/// What is wanted.
#[derive(Clone, Copy)]
enum Goal {
    /// At most so much of the original's number.
    Ratio(f64),
    /// Our own number is zero.
    Nothing,
    /// The number explains others.
    None,
}

/// A third of the original's time is three times its throughput.
const THIRD: Goal = Goal::Ratio(1.0 / 3.0);
const HALF: Goal = Goal::Ratio(0.5);
const NOT_SLOWER: Goal = Goal::Ratio(1.0);

const ROWS: [Row; 19] = [
    row(
        "loader, text, no workers: a sample",
        "text_0_sample_s",
        Unit::Microseconds,
        NOT_SLOWER,
    ),
    row(
        "loader, text, 2 workers: a sample",
        "text_2_sample_s",
        Unit::Microseconds,
        THIRD,
    ),
    row(
        "loader, text, 2 workers: epoch to first batch",
        "text_2_first_batch_s",
        Unit::Milliseconds,
        NOT_SLOWER,
    ),
    row(
        "loader, images, no workers: a sample",
        "image_0_sample_s",
        Unit::Microseconds,
        NOT_SLOWER,
    ),
    row(
        "loader, images, 2 workers: a sample",
        "image_2_sample_s",
        Unit::Microseconds,
        THIRD,
    ),
    row(
        "loader, images, 2 workers: epoch to first batch",
        "image_2_first_batch_s",
        Unit::Milliseconds,
        NOT_SLOWER,
    ),
    row(
        "images: copying a sample into a batch that exists",
        "image_copy_s",
        Unit::Microseconds,
        Goal::None,
    ),
    row(
        "`gather_for_metrics` of `[64]` integers",
        "gather_labels_s",
        Unit::Microseconds,
        NOT_SLOWER,
    ),
    row(
        "`gather_for_metrics` of `[64, 128]` floats",
        "gather_scores_s",
        Unit::Microseconds,
        NOT_SLOWER,
    ),
    row(
        "batch that keeps gradients local",
        "local_s",
        Unit::Microseconds,
        NOT_SLOWER,
    ),
    row(
        "batch that exchanges gradients",
        "exchanged_s",
        Unit::Microseconds,
        NOT_SLOWER,
    ),
    row(
        "sent by a batch that keeps gradients local",
        "local_bytes",
        Unit::Bytes,
        Goal::Nothing,
    ),
    row(
        "sent by a batch that exchanges gradients",
        "exchanged_bytes",
        Unit::Bytes,
        Goal::None,
    ),
    row(
        "AdamW, schedule, `zero_grad`: a step",
        "step_s",
        Unit::Microseconds,
        Goal::None,
    ),
    row(
        "the same beside the original's fused AdamW",
        "step_s",
        Unit::Microseconds,
        Goal::None,
    )
    .beside("fused_step_s"),
    row(
        "of it the kernel over ready lists",
        "kernel_s",
        Unit::Microseconds,
        Goal::None,
    ),
    row(
        "overhead over the kernel",
        "step_overhead_s",
        Unit::Microseconds,
        HALF,
    ),
    row(
        "the same beside the original's fused AdamW",
        "step_overhead_s",
        Unit::Microseconds,
        HALF,
    )
    .beside("fused_step_overhead_s"),
    row(
        "prepared schedule: a step",
        "schedule_s",
        Unit::Microseconds,
        HALF,
    ),
];

/// A number that both sides call the same.
const fn row(name: &'static str, key: &'static str, unit: Unit, goal: Goal) -> Row {
    Row {
        name,
        ours: key,
        original: key,
        unit,
        goal,
    }
}

impl Row {
    /// Compares with another number of the original.
    const fn beside(self, original: &'static str) -> Self {
        Self { original, ..self }
    }
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Microseconds => "µs",
            Self::Bytes => "bytes",
        }
    }

    /// How many of the base unit make one of this.
    const fn scale(self) -> f64 {
        match self {
            Self::Milliseconds => 1e-3,
            Self::Microseconds => 1e-6,
            Self::Bytes => 1.0,
        }
    }
}

/// Runs each part by both sides in turns, and gives the table in Markdown.
pub(super) fn measure(workspace: &Workspace, rounds: u32) -> Result<String, Failure> {
    setup::run(workspace)?;
    let env = PythonEnv::set_up(workspace)?;
    step::command(&BUILD.join(" "), workspace.cargo().args(BUILD))?;
    let target = workspace.metadata()?.target_dir;
    let folder = target.join("bench-peers");
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::because(format!("cannot make `{}`", folder.display()), error))?;
    let bench = Bench {
        workspace,
        env,
        release: target.join("release"),
        folder,
    };
    let (mut ours, mut original) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let (one, other) = bench.round(round)?;
        one.did_the_work_of(&other)?;
        ours.push(one);
        original.push(other);
    }
    table(&ours, &original)
}

struct Bench<'a> {
    workspace: &'a Workspace,
    env: PythonEnv,
    release: PathBuf,
    folder: PathBuf,
}

impl Bench<'_> {
    /// Every part by each side, one after the other; which goes first alternates.
    fn round(&self, round: u32) -> Result<(Numbers, Numbers), Failure> {
        let (mut ours, mut original) = (Numbers::default(), Numbers::default());
        for (part, processes) in PARTS {
            let name = |side| format!("round {}, {part}, {side}", round + 1);
            let mut run_ours = || {
                self.measure(
                    &name("ours"),
                    self.ours(part, processes),
                    processes,
                    &mut ours,
                )
            };
            let mut run_original = || {
                let command = self.original(part, processes);
                self.measure(&name("the original"), command, processes, &mut original)
            };
            if round.is_multiple_of(2) {
                run_ours()?;
                run_original()?;
            } else {
                run_original()?;
                run_ours()?;
            }
        }
        Ok((ours, original))
    }

    fn ours(&self, part: &str, processes: usize) -> Command {
        let program = self.release.join("examples/training_core");
        let mut command = if processes == 1 {
            Command::new(program)
        } else {
            let mut launch = Command::new(self.release.join("accelerate"));
            let count = processes.to_string();
            launch
                .args(["launch", "--cpu", "--num_processes", &count])
                .arg(program);
            launch
        };
        command.arg(part);
        command
    }

    fn original(&self, part: &str, processes: usize) -> Command {
        let mut command = if processes == 1 {
            Command::new(self.env.python())
        } else {
            let mut launch = Command::new(self.env.program("torchrun"));
            launch.args(["--nproc_per_node", &processes.to_string()]);
            launch
        };
        command.args([PEER_SCRIPT, part]).env("HF_HUB_OFFLINE", "1");
        command
    }

    fn measure(
        &self,
        name: &str,
        mut command: Command,
        ranks: usize,
        into: &mut Numbers,
    ) -> Result<(), Failure> {
        let file = self.folder.join("training-core");
        for rank in 0..ranks {
            remove_old(&rank_file(&file, rank))?;
        }
        command
            .arg("--bench-json")
            .arg(&file)
            .current_dir(self.workspace.path(""))
            .env("OMP_NUM_THREADS", "1");
        step(name, || {
            step::run(&mut command)?;
            (0..ranks).try_for_each(|rank| into.read(&rank_file(&file, rank)))
        })
    }
}

fn table(ours: &[Numbers], original: &[Numbers]) -> Result<String, Failure> {
    let mut text = format!(
        "{}; 1 thread each, 2 processes for what is between ranks; rounds: {}\n\n",
        machine(),
        ours.len()
    );
    text += "| measure | ours | original | ratio | range | goal | met |\n";
    text += "| --- | ---: | ---: | ---: | ---: | ---: | --- |\n";
    for row in &ROWS {
        let all = |side: &[Numbers], name| -> Result<Vec<f64>, Failure> {
            side.iter().map(|numbers| numbers.get(name)).collect()
        };
        text += &line(row, &all(ours, row.ours)?, &all(original, row.original)?);
    }
    Ok(text)
}

fn line(row: &Row, ours: &[f64], original: &[f64]) -> String {
    let cells = match row.goal {
        Goal::Ratio(goal) => ratio_cells(ours, original, Some(goal)),
        Goal::None => ratio_cells(ours, original, None),
        Goal::Nothing => {
            let met = ours.iter().all(|&number| number == 0.0);
            format!("| | | 0 | {} |", if met { "yes" } else { "no" })
        }
    };
    let shown = |numbers: &[f64]| {
        let number = median(numbers) / row.unit.scale();
        match row.unit {
            Unit::Bytes => format!("{number:.0}"),
            _ => format!("{number:.2}"),
        }
    };
    format!(
        "| {} ({}) | {} | {} {cells}\n",
        row.name,
        row.unit.name(),
        shown(ours),
        shown(original)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_hold_ratios_goals_and_bytes() {
        let time = row("x", "x", Unit::Microseconds, HALF);
        assert_eq!(
            line(&time, &[2e-6, 4e-6, 9e-6], &[8e-6, 8e-6, 9e-6]),
            "| x (µs) | 4.00 | 8.00 | 0.500 | 0.250 to 1.000 | 0.500 | yes |\n"
        );
        let free = row("x", "x", Unit::Milliseconds, Goal::None);
        assert_eq!(
            line(&free, &[2e-3], &[1e-3]),
            "| x (ms) | 2.00 | 1.00 | 2.000 | 2.000 to 2.000 | | |\n"
        );
        let bytes = row("x", "x", Unit::Bytes, Goal::Nothing);
        assert_eq!(
            line(&bytes, &[0.0, 0.0], &[0.0, 8.0]),
            "| x (bytes) | 0 | 4 | | | 0 | yes |\n"
        );
        assert!(line(&bytes, &[0.0, 1.0, 0.0], &[0.0]).ends_with("| no |\n"));
    }
}
