//! Saving and loading the state of a training, beside the original and beside plain large writes.

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
use super::remove_old;
use super::report::{machine, ratio_cells};

/// How often each side runs where nobody says.
pub(super) const ROUNDS: u32 = 3;

/// How many megabytes of weights and moments are saved where nobody says.
pub(super) const MEGABYTES: u32 = 2400;

/// What has to be built.
const BUILD: [&str; 2] = ["--example", "training_core"];

/// The original's side.
const PEER_SCRIPT: &str = "tests/parity/bench_checkpoint.py";

/// Whose number ours is compared with.
#[derive(Clone, Copy)]
enum Beside {
    Original,
    Own,
}

/// One line of the table.
struct Row {
    name: &'static str,
    ours: &'static str,
    beside: (Beside, &'static str),
    goal: Option<f64>,
}

const ROWS: [Row; 7] = [
    Row {
        name: "`save_state`, beside plain writes of as many bytes",
        ours: "save_s",
        beside: (Beside::Own, "plain_write_s"),
        goal: Some(1.0 / 0.85),
    },
    Row {
        name: "`save_state`, beside the original's until the disk has it",
        ours: "save_s",
        beside: (Beside::Original, "flushed_save_s"),
        goal: Some(1.0),
    },
    Row {
        name: "the same, beside the original's call, which leaves all in the cache",
        ours: "save_s",
        beside: (Beside::Original, "save_s"),
        goal: None,
    },
    Row {
        name: "stall of `save_state_in_background`, beside `save_state`",
        ours: "stall_s",
        beside: (Beside::Own, "save_s"),
        goal: Some(0.05),
    },
    Row {
        name: "the same the first time, when the memory for copies is new",
        ours: "first_stall_s",
        beside: (Beside::Own, "save_s"),
        goal: None,
    },
    Row {
        name: "`load_state`, hashes verified, beside the original's, which verifies nothing",
        ours: "load_s",
        beside: (Beside::Original, "load_s"),
        goal: None,
    },
    Row {
        name: "`load_state`, sizes verified",
        ours: "load_unverified_s",
        beside: (Beside::Original, "load_s"),
        goal: Some(1.0),
    },
];

/// Runs both sides in turns with so many megabytes, and gives the table in Markdown.
pub(super) fn measure(
    workspace: &Workspace,
    rounds: u32,
    megabytes: u32,
) -> Result<String, Failure> {
    setup::run(workspace)?;
    let env = PythonEnv::set_up(workspace)?;
    release::build(workspace, &BUILD)?;
    let target = workspace.metadata()?.target_dir;
    let folder = target.join("bench-peers");
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::because(format!("cannot make `{}`", folder.display()), error))?;
    let bench = Bench {
        workspace,
        env,
        program: target.join("release/examples/training_core"),
        folder,
        megabytes,
    };
    let mut pairs = Vec::new();
    for round in 0..rounds {
        let pair = bench.round(round)?;
        pair.0.did_the_work_of(&pair.1)?;
        pairs.push(pair);
    }
    table(&pairs, megabytes)
}

struct Bench<'a> {
    workspace: &'a Workspace,
    env: PythonEnv,
    program: PathBuf,
    folder: PathBuf,
    megabytes: u32,
}

impl Bench<'_> {
    /// One run of each side, ours first in the pair; which goes first in time alternates.
    fn round(&self, round: u32) -> Result<(Numbers, Numbers), Failure> {
        let ours = || {
            let mut command = Command::new(&self.program);
            command.arg("checkpoint");
            self.run(&format!("round {}, ours", round + 1), command)
        };
        let original = || {
            let mut command = Command::new(self.env.python());
            command.arg(PEER_SCRIPT).env("HF_HUB_OFFLINE", "1");
            self.run(&format!("round {}, the original", round + 1), command)
        };
        if round.is_multiple_of(2) {
            let ours = ours()?;
            return Ok((ours, original()?));
        }
        let original = original()?;
        Ok((ours()?, original))
    }

    fn run(&self, name: &str, mut command: Command) -> Result<Numbers, Failure> {
        let file = rank_file(&self.folder.join("checkpoint"), 0);
        remove_old(&file)?;
        command
            .arg("--bench-json")
            .arg(self.folder.join("checkpoint"))
            .arg("--folder")
            .arg(self.folder.join("checkpoint-files"))
            .args(["--megabytes", &self.megabytes.to_string()])
            .current_dir(self.workspace.path(""));
        step(name, || {
            step::run(&mut command)?;
            let mut numbers = Numbers::default();
            numbers.read(&file)?;
            Ok(numbers)
        })
    }
}

fn table(pairs: &[(Numbers, Numbers)], megabytes: u32) -> Result<String, Failure> {
    let mut text = format!(
        "{}; {megabytes} MB of weights and moments; rounds: {}\n\n",
        machine(),
        pairs.len()
    );
    text += "| measure | ours (s) | beside (s) | ratio | range | goal | met |\n";
    text += "| --- | ---: | ---: | ---: | ---: | ---: | --- |\n";
    for row in &ROWS {
        let (mut ours, mut beside) = (Vec::new(), Vec::new());
        for (own, original) in pairs {
            ours.push(own.get(row.ours)?);
            let (side, name) = row.beside;
            beside.push(match side {
                Beside::Own => own.get(name)?,
                Beside::Original => original.get(name)?,
            });
        }
        text += &format!(
            "| {} | {:.2} | {:.2} {}\n",
            row.name,
            median(&ours),
            median(&beside),
            ratio_cells(&ours, &beside, row.goal)
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_stands_beside_its_own_or_the_originals_number() {
        let ours = [
            ("save_s", 1.1),
            ("plain_write_s", 1.0),
            ("stall_s", 0.11),
            ("first_stall_s", 0.3),
            ("load_s", 2.0),
            ("load_unverified_s", 0.5),
        ];
        let original = [("save_s", 0.5), ("flushed_save_s", 2.2), ("load_s", 1.0)];
        let pair = (Numbers::of(&ours), Numbers::of(&original));
        let text = table(&[pair], 100).unwrap();
        for line in [
            "| `save_state`, beside plain writes of as many bytes | 1.10 | 1.00 | 1.100 | 1.100 to 1.100 | 1.176 | yes |",
            "| 1.10 | 2.20 | 0.500 | 0.500 to 0.500 | 1.000 | yes |",
            "| 0.11 | 1.10 | 0.100 | 0.100 to 0.100 | 0.050 | no |",
            "| 2.00 | 1.00 | 2.000 | 2.000 to 2.000 | | |",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.contains("100 MB"), "{text}");
    }
}
