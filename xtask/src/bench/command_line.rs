//! How fast commands answer, and what launching adds to a program's own time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::failure::Failure;
use crate::python_env::PythonEnv;
use crate::release;
use crate::step::{self, step};
use crate::workspace::Workspace;

use super::measurement::median;
use super::report::{machine, range};

/// How often each side runs where nobody says.
pub(super) const ROUNDS: u32 = 10;

/// What has to be built.
const BUILD: [&str; 2] = ["--bin", "accelerate"];

/// Every command is to answer, and a launch to add, less than this many milliseconds.
const GOAL_MS: f64 = 50.0;

/// A program that does nothing, so that all its time is that of starting it.
const NOTHING: &str = "/bin/true";

/// A model of 22.7M parameters, of which only this text is needed.
const MODEL: &str = r#"{
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 384,
    "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536,
    "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2
}"#;

/// A config file that both sides read.
const CONFIG: &str = "\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_CPU
mixed_precision: 'no'
num_machines: 1
num_processes: 2
use_cpu: true
";

/// One line of the table.
struct Case {
    name: &'static str,
    ours: &'static [&'static str],
    /// The program of the original and its arguments, where it can do the same.
    original: Option<(&'static str, &'static [&'static str])>,
    /// Whether the time of the program that is started is taken off.
    is_launch: bool,
}

const CASES: [Case; 6] = [
    Case {
        name: "`accelerate --help`",
        ours: &["--help"],
        original: Some(("accelerate", &["--help"])),
        is_launch: false,
    },
    Case {
        name: "`accelerate env`",
        ours: &["env"],
        original: Some(("accelerate", &["env"])),
        is_launch: false,
    },
    Case {
        name: "`accelerate config show`, beside the original's `env`",
        ours: &["config", "show", "--config_file", "job.yaml"],
        original: Some(("accelerate", &["env", "--config_file", "job.yaml"])),
        is_launch: false,
    },
    Case {
        name: "`accelerate estimate-memory` on a local folder",
        ours: &["estimate-memory", "./model"],
        // It asks the hub, whatever is on the disk.
        original: None,
        is_launch: false,
    },
    Case {
        name: "added by `accelerate launch`, 1 process",
        ours: &["launch", "--cpu", "--num_processes", "1", NOTHING],
        original: Some((
            "accelerate",
            &[
                "launch",
                "--cpu",
                "--num_processes",
                "1",
                "--no_python",
                NOTHING,
            ],
        )),
        is_launch: true,
    },
    Case {
        name: "added by `accelerate launch`, 2 processes, beside `torchrun`",
        ours: &["launch", "--cpu", "--num_processes", "2", NOTHING],
        original: Some((
            "torchrun",
            &["--nproc_per_node", "2", "--no_python", NOTHING],
        )),
        is_launch: true,
    },
];

/// What the rounds of one case took, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
struct Times {
    ours: Vec<f64>,
    original: Vec<f64>,
}

/// Runs each command by both sides in turns, and gives the table in Markdown.
pub(super) fn measure(workspace: &Workspace, rounds: u32) -> Result<String, Failure> {
    let env = PythonEnv::set_up(workspace)?;
    release::build(workspace, &BUILD)?;
    let target = workspace.metadata()?.target_dir;
    let bench = Bench {
        accelerate: target.join("release/accelerate"),
        env,
        folder: target.join("bench-peers/command-line"),
    };
    bench.prepare()?;
    let mut text = format!("{}; rounds: {rounds}\n\n", machine());
    text += "| command | ours (ms) | range | original (ms) | ratio | goal (ms) | met |\n";
    text += "| --- | ---: | ---: | ---: | ---: | ---: | --- |\n";
    for case in &CASES {
        let times = step(case.name, || bench.case(case, rounds))?;
        text += &line(case.name, &times);
    }
    Ok(text)
}

struct Bench {
    accelerate: PathBuf,
    env: PythonEnv,
    folder: PathBuf,
}

impl Bench {
    /// The files that the commands read.
    fn prepare(&self) -> Result<(), Failure> {
        let failed = |error| {
            let folder = self.folder.display();
            Failure::because(format!("cannot write into `{folder}`"), error)
        };
        fs::create_dir_all(self.folder.join("model")).map_err(failed)?;
        fs::write(self.folder.join("model/config.json"), MODEL).map_err(failed)?;
        fs::write(self.folder.join("job.yaml"), CONFIG).map_err(failed)
    }

    /// Each round runs the program alone, ours, and the original, one after another.
    fn case(&self, case: &Case, rounds: u32) -> Result<Times, Failure> {
        let original = case
            .original
            .map(|(program, arguments)| (self.env.program(program), arguments));
        let mut times = Times::default();
        // The first run of each reads its files from the disk.
        self.run(&self.accelerate, case.ours)?;
        if let Some((program, arguments)) = &original {
            self.run(program, arguments)?;
        }
        for _ in 0..rounds {
            let alone = match case.is_launch {
                true => self.run(Path::new(NOTHING), &[])?,
                false => 0.0,
            };
            times
                .ours
                .push(self.run(&self.accelerate, case.ours)? - alone);
            if let Some((program, arguments)) = &original {
                times.original.push(self.run(program, arguments)? - alone);
            }
        }
        Ok(times)
    }

    /// Milliseconds from the start of a command to its end.
    fn run(&self, program: &Path, arguments: &[&str]) -> Result<f64, Failure> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(&self.folder)
            // Nobody's own settings.
            .env("HF_HOME", self.folder.join("home"))
            .env("HF_HUB_OFFLINE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let start = Instant::now();
        step::run(&mut command)?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }
}

fn line(name: &str, times: &Times) -> String {
    let ratios: Vec<f64> = times
        .ours
        .iter()
        .zip(&times.original)
        .map(|(ours, original)| ours / original)
        .collect();
    let ours = median(&times.ours);
    let (least, greatest) = range(&times.ours);
    let beside = match times.original.as_slice() {
        [] => "| | |".to_owned(),
        original => format!("| {:.0} | {:.4} |", median(original), median(&ratios)),
    };
    format!(
        "| {name} | {ours:.1} | {least:.1} to {greatest:.1} {beside} {GOAL_MS:.0} | {} |\n",
        if ours < GOAL_MS { "yes" } else { "no" }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_medians_and_the_goal() {
        let times = Times {
            ours: vec![4.0, 2.0, 9.0],
            original: vec![4000.0, 4000.0, 3000.0],
        };
        assert_eq!(
            line("x", &times),
            "| x | 4.0 | 2.0 to 9.0 | 4000 | 0.0010 | 50 | yes |\n"
        );
        let slow = Times {
            ours: vec![50.0],
            original: vec![100.0],
        };
        assert!(line("x", &slow).ends_with("| 0.5000 | 50 | no |\n"));
        let alone = Times {
            ours: vec![3.0],
            original: Vec::new(),
        };
        assert_eq!(
            line("x", &alone),
            "| x | 3.0 | 3.0 to 3.0 | | | 50 | yes |\n"
        );
    }
}
