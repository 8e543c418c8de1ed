//! Programs that measure several things at once, by both sides in turns, as a table of ratios.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::python_env::PythonEnv;
use crate::release;
use crate::setup;
use crate::step::{self, step};
use crate::workspace::Workspace;

use super::measurement::{median, rank_file};
use super::numbers::Numbers;
use super::report::{machine, ratio_cells};
use super::{START_VARIABLE, remove_old, seconds_now};

/// A program of ours, the original's, and what is wanted of their numbers.
///
/// Both are called as `PROGRAM PART --bench-json PATH` with the `arguments` behind, and write objects
/// `measures` and `checks`.
pub(super) struct Suite {
    /// Our program, an example of a member of the workspace.
    pub(super) example: &'static str,
    /// The original's program.
    pub(super) script: &'static str,
    /// What the two programs are asked for, and on how many processes.
    pub(super) parts: &'static [(&'static str, usize)],
    /// What both are told besides.
    pub(super) arguments: &'static [&'static str],
    /// The launcher's flags for a part of our program that runs on several processes.
    pub(super) flags: fn(&str) -> Vec<&'static str>,
    /// On what they run, in words.
    pub(super) processes: &'static str,
    /// The lines of the table.
    pub(super) rows: Vec<Row>,
}

/// The flags for processes that compute on a CPU, whatever the part.
pub(super) fn on_cpu(_part: &str) -> Vec<&'static str> {
    vec!["--cpu"]
}

/// One line of the table: what each side calls the number, and what is wanted of it.
pub(super) struct Row {
    name: String,
    ours: String,
    beside: Beside,
    unit: Unit,
    goal: Goal,
}

/// The number that ours is compared with.
enum Beside {
    Original(String),
    Own(String),
}

/// In what a number is shown.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
    Microseconds,
    Bytes,
    Mebibytes,
}

/// What is wanted.
#[derive(Clone, Copy)]
pub(super) enum Goal {
    /// At most so much of the original's number.
    Ratio(f64),
    /// Our own number is zero.
    Nothing,
    /// The number explains others.
    None,
}

impl Goal {
    pub(super) const NOT_SLOWER: Self = Self::Ratio(1.0);
}

impl Row {
    /// A number that both sides call the same.
    pub(super) fn new(name: &str, key: &str, unit: Unit, goal: Goal) -> Self {
        Self {
            name: name.to_owned(),
            ours: key.to_owned(),
            beside: Beside::Original(key.to_owned()),
            unit,
            goal,
        }
    }

    /// Compares with another number of the original.
    pub(super) fn beside(self, original: &str) -> Self {
        Self {
            beside: Beside::Original(original.to_owned()),
            ..self
        }
    }

    /// Compares with another number of our own.
    pub(super) fn beside_own(self, own: &str) -> Self {
        Self {
            beside: Beside::Own(own.to_owned()),
            ..self
        }
    }
}

impl Unit {
    const fn name(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "µs",
            Self::Bytes => "bytes",
            Self::Mebibytes => "MiB",
        }
    }

    /// How many of the base unit make one of this.
    const fn scale(self) -> f64 {
        match self {
            Self::Milliseconds => 1e-3,
            Self::Microseconds => 1e-6,
            Self::Seconds | Self::Bytes => 1.0,
            Self::Mebibytes => 1_048_576.0,
        }
    }
}

/// Runs each part by both sides in turns, and gives the table in Markdown.
pub(super) fn measure(
    workspace: &Workspace,
    rounds: u32,
    suite: &Suite,
) -> Result<String, Failure> {
    setup::run(workspace)?;
    let env = PythonEnv::set_up(workspace)?;
    build(workspace, suite)?;
    let target = workspace.metadata()?.target_dir;
    let folder = target.join("bench-peers");
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::because(format!("cannot make `{}`", folder.display()), error))?;
    let bench = Bench {
        workspace,
        suite,
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
    table(suite, &ours, &original)
}

fn build(workspace: &Workspace, suite: &Suite) -> Result<(), Failure> {
    let targets = ["--bin", "accelerate", "--example", suite.example];
    release::build(workspace, &targets)
}

struct Bench<'a> {
    workspace: &'a Workspace,
    suite: &'a Suite,
    env: PythonEnv,
    release: PathBuf,
    folder: PathBuf,
}

impl Bench<'_> {
    /// Every part by each side, one after the other; which goes first alternates.
    fn round(&self, round: u32) -> Result<(Numbers, Numbers), Failure> {
        let (mut ours, mut original) = (Numbers::default(), Numbers::default());
        for &(part, processes) in self.suite.parts {
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
        let program = self.release.join("examples").join(self.suite.example);
        let mut command = if processes == 1 {
            Command::new(program)
        } else {
            let mut launch = Command::new(self.release.join("accelerate"));
            let count = processes.to_string();
            launch
                .arg("launch")
                .args((self.suite.flags)(part))
                .args(["--num_processes", &count])
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
        command
            .args([self.suite.script, part])
            .env("HF_HUB_OFFLINE", "1");
        command
    }

    fn measure(
        &self,
        name: &str,
        mut command: Command,
        ranks: usize,
        into: &mut Numbers,
    ) -> Result<(), Failure> {
        let file = self.folder.join(self.suite.example);
        for rank in 0..ranks {
            remove_old(&rank_file(&file, rank))?;
        }
        command
            .arg("--bench-json")
            .arg(&file)
            .args(self.suite.arguments)
            .current_dir(self.workspace.path(""))
            .env("OMP_NUM_THREADS", "1");
        step(name, || {
            step::run(command.env(START_VARIABLE, seconds_now().to_string()))?;
            (0..ranks).try_for_each(|rank| into.read(&rank_file(&file, rank)))
        })
    }
}

fn table(suite: &Suite, ours: &[Numbers], original: &[Numbers]) -> Result<String, Failure> {
    let mut text = format!(
        "{}; {}; rounds: {}\n\n",
        machine(),
        suite.processes,
        ours.len()
    );
    let mut rows = suite.rows.iter();
    let has_own = rows.any(|row| matches!(row.beside, Beside::Own(_)));
    let beside = if has_own { "beside" } else { "original" };
    text += &format!("| measure | ours | {beside} | ratio | range | goal | met |\n");
    text += "| --- | ---: | ---: | ---: | ---: | ---: | --- |\n";
    for row in &suite.rows {
        let all = |side: &[Numbers], name: &str| -> Result<Vec<f64>, Failure> {
            side.iter().map(|numbers| numbers.get(name)).collect()
        };
        let beside = match &row.beside {
            Beside::Original(name) => all(original, name)?,
            Beside::Own(name) => all(ours, name)?,
        };
        text += &line(row, &all(ours, &row.ours)?, &beside);
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
        let time = Row::new("x", "x", Unit::Microseconds, Goal::Ratio(0.5));
        assert_eq!(
            line(&time, &[2e-6, 4e-6, 9e-6], &[8e-6, 8e-6, 9e-6]),
            "| x (µs) | 4.00 | 8.00 | 0.500 | 0.250 to 1.000 | 0.500 | yes |\n"
        );
        let free = Row::new("x", "x", Unit::Milliseconds, Goal::None);
        assert_eq!(
            line(&free, &[2e-3], &[1e-3]),
            "| x (ms) | 2.00 | 1.00 | 2.000 | 2.000 to 2.000 | | |\n"
        );
        let bytes = Row::new("x", "x", Unit::Bytes, Goal::Nothing);
        assert_eq!(
            line(&bytes, &[0.0, 0.0], &[0.0, 8.0]),
            "| x (bytes) | 0 | 4 | | | 0 | yes |\n"
        );
        assert!(line(&bytes, &[0.0, 1.0, 0.0], &[0.0]).ends_with("| no |\n"));
    }

    #[test]
    fn a_line_stands_beside_the_originals_number_or_our_own() {
        let row = |name| Row::new(name, "step", Unit::Mebibytes, Goal::Ratio(1.0));
        let suite = Suite {
            example: "e",
            script: "s",
            parts: &[],
            arguments: &[],
            flags: on_cpu,
            processes: "2 processes",
            rows: vec![row("theirs"), row("own").beside_own("other")],
        };
        let mib = 1_048_576.0;
        let ours = [Numbers::of(&[("step", 3.0 * mib), ("other", 2.0 * mib)])];
        let original = [Numbers::of(&[("step", 4.0 * mib)])];
        let text = table(&suite, &ours, &original).unwrap();
        for wanted in [
            "| measure | ours | beside | ratio |",
            "| theirs (MiB) | 3.00 | 4.00 | 0.750 | 0.750 to 0.750 | 1.000 | yes |",
            "| own (MiB) | 3.00 | 2.00 | 1.500 | 1.500 to 1.500 | 1.000 | no |",
        ] {
            assert!(text.contains(wanted), "{text}");
        }
        let nobody = [Numbers::default()];
        assert!(table(&suite, &ours, &nobody).is_err());
    }
}
