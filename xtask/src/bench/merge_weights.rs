//! How fast shards become whole weights, and how much memory that takes.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::failure::Failure;
use crate::private_memory::watch;
use crate::python_env::PythonEnv;
use crate::release;
use crate::step::{self, step};
use crate::workspace::Workspace;

use super::measurement::median;
use super::report::{machine, ratio_cells};

/// How often each side runs where nobody says.
pub(super) const ROUNDS: u32 = 3;

/// How large the checkpoint is where nobody says, in megabytes.
pub(super) const MEGABYTES: u32 = 800;

/// What has to be built.
const BUILD: [&str; 2] = ["--bin", "accelerate"];

/// Makes the checkpoint.
const PEER_SCRIPT: &str = "tests/parity/weight_files.py";

/// How much plain copying reads and writes at a time.
const BLOCK_BYTES: usize = 8 << 20;

const TIME_GOAL: f64 = 0.2;
const MEMORY_GOAL: f64 = 0.1;

/// What one run took.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Run {
    seconds: f64,
    /// The most memory of its own that was seen: what is mapped from files is not counted.
    private_bytes: f64,
}

/// Merges by both sides in turns, and gives the table in Markdown.
pub(super) fn measure(
    workspace: &Workspace,
    rounds: u32,
    megabytes: u32,
) -> Result<String, Failure> {
    let env = PythonEnv::set_up(workspace)?;
    release::build(workspace, &BUILD)?;
    let target = workspace.metadata()?.target_dir;
    let bench = Bench {
        accelerate: target.join("release/accelerate"),
        folder: target.join("bench-peers/merge-weights"),
        env,
    };
    bench.make_checkpoint(workspace, megabytes)?;
    let (mut ours, mut original, mut copies) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let name = |side| format!("round {}, {side}", round + 1);
        copies.push(step(&name("plain copying"), || bench.copy())?);
        let mut run_ours = || -> Result<(), Failure> {
            ours.push(step(&name("ours"), || {
                bench.run(&bench.accelerate, "ours")
            })?);
            Ok(())
        };
        let mut run_original = || -> Result<(), Failure> {
            let program = bench.env.program("accelerate");
            original.push(step(&name("the original"), || {
                bench.run(&program, "original")
            })?);
            Ok(())
        };
        if round.is_multiple_of(2) {
            run_ours()?;
            run_original()?;
        } else {
            run_original()?;
            run_ours()?;
        }
        bench.require_equal()?;
    }
    bench.remove()?;
    Ok(table(megabytes, &ours, &original, &copies))
}

struct Bench {
    accelerate: PathBuf,
    folder: PathBuf,
    env: PythonEnv,
}

impl Bench {
    fn failed(&self, error: io::Error) -> Failure {
        Failure::because(format!("cannot work in `{}`", self.folder.display()), error)
    }

    fn make_checkpoint(&self, workspace: &Workspace, megabytes: u32) -> Result<(), Failure> {
        fs::create_dir_all(&self.folder).map_err(|error| self.failed(error))?;
        let bytes = (u64::from(megabytes) * 1_000_000).to_string();
        step::command(
            &format!("a distributed checkpoint of {megabytes} MB"),
            Command::new(self.env.python())
                .arg(workspace.path(PEER_SCRIPT))
                .arg("large")
                .arg(&self.folder)
                .arg(bytes),
        )
    }

    /// One merging into a folder that is not there.
    fn run(&self, program: &Path, output: &str) -> Result<Run, Failure> {
        let output = self.folder.join(output);
        if output.exists() {
            fs::remove_dir_all(&output).map_err(|error| self.failed(error))?;
        }
        let mut command = Command::new(program);
        command
            .arg("merge-weights")
            .arg(self.folder.join("checkpoint"))
            .arg(&output)
            .env("HF_HOME", self.folder.join("home"))
            .env("HF_HUB_OFFLINE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let start = Instant::now();
        let mut child = command.spawn().map_err(|error| self.failed(error))?;
        let private_bytes = watch(&mut child)
            .map_err(|error| Failure::because(format!("`{}` failed", program.display()), error))?;
        Ok(Run {
            seconds: start.elapsed().as_secs_f64(),
            private_bytes,
        })
    }

    /// The seconds of reading and writing the same bytes in large blocks, down to the disk.
    fn copy(&self) -> Result<f64, Failure> {
        let start = Instant::now();
        let copied = || -> io::Result<()> {
            let path = self.folder.join("copy");
            let mut to = File::create(&path)?;
            let mut block = vec![0; BLOCK_BYTES];
            for entry in fs::read_dir(self.folder.join("checkpoint"))? {
                let mut from = File::open(entry?.path())?;
                loop {
                    let read = from.read(&mut block)?;
                    let Some(read) = block.get(..read).filter(|read| !read.is_empty()) else {
                        break;
                    };
                    to.write_all(read)?;
                }
            }
            to.sync_all()?;
            fs::remove_file(path)
        };
        copied().map_err(|error| self.failed(error))?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Times of different work must not be compared.
    fn require_equal(&self) -> Result<(), Failure> {
        let files =
            ["ours", "original"].map(|side| self.folder.join(side).join("model.safetensors"));
        let [ours, original] = files;
        if same_bytes(&ours, &original).map_err(|error| self.failed(error))? {
            return Ok(());
        }
        Err(Failure::new(format!(
            "`{}` and `{}` are not the same",
            ours.display(),
            original.display()
        )))
    }

    fn remove(&self) -> Result<(), Failure> {
        fs::remove_dir_all(&self.folder).map_err(|error| self.failed(error))
    }
}

fn same_bytes(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    loop {
        ours.clear();
        theirs.clear();
        read_block(&mut one, &mut ours)?;
        read_block(&mut other, &mut theirs)?;
        if ours != theirs {
            return Ok(false);
        }
        if ours.is_empty() {
            return Ok(true);
        }
    }
}

fn read_block(file: &mut File, into: &mut Vec<u8>) -> io::Result<usize> {
    file.take(BLOCK_BYTES as u64).read_to_end(into)
}

fn table(megabytes: u32, ours: &[Run], original: &[Run], copies: &[f64]) -> String {
    let mut text = format!(
        "{}; {megabytes} MB in the page cache; rounds: {}\n\n",
        machine(),
        ours.len()
    );
    text += "| measure | ours | original | ratio | range | goal | met |\n";
    text += "| --- | ---: | ---: | ---: | ---: | ---: | --- |\n";
    let all = |runs: &[Run], of: fn(&Run) -> f64| runs.iter().map(of).collect::<Vec<f64>>();
    let seconds: fn(&Run) -> f64 = |run| run.seconds;
    let private_bytes: fn(&Run) -> f64 = |run| run.private_bytes;
    for (name, scale, of, goal) in [
        ("`merge-weights` (s)", 1.0, seconds, TIME_GOAL),
        (
            "peak private memory (MiB)",
            1_048_576.0,
            private_bytes,
            MEMORY_GOAL,
        ),
    ] {
        let (ours, original) = (all(ours, of), all(original, of));
        text += &format!(
            "| {name} | {:.2} | {:.2} {}\n",
            median(&ours) / scale,
            median(&original) / scale,
            ratio_cells(&ours, &original, Some(goal))
        );
    }
    let seconds = all(ours, seconds);
    text + &format!(
        "| beside plain copying of the same bytes to the disk (s) | {:.2} | {:.2} {}\n",
        median(&seconds),
        median(copies),
        ratio_cells(&seconds, copies, None)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_goals_and_the_floor() {
        let run = |seconds, private_bytes| Run {
            seconds,
            private_bytes,
        };
        let mib = 1_048_576.0;
        let text = table(
            800,
            &[run(1.0, 10.0 * mib)],
            &[run(10.0, 2000.0 * mib)],
            &[0.8],
        );
        for line in [
            "| `merge-weights` (s) | 1.00 | 10.00 | 0.100 | 0.100 to 0.100 | 0.200 | yes |",
            "| peak private memory (MiB) | 10.00 | 2000.00 | 0.005 | 0.005 to 0.005 | 0.100 | yes |",
            "| beside plain copying of the same bytes to the disk (s) | 1.00 | 0.80 | 1.250 |",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn files_are_compared_to_the_last_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a"), vec![1; BLOCK_BYTES + 3]).unwrap();
        let mut other = vec![1; BLOCK_BYTES + 3];
        fs::write(path("b"), &other).unwrap();
        assert!(same_bytes(&path("a"), &path("b")).unwrap());
        *other.last_mut().unwrap() = 2;
        fs::write(path("b"), &other).unwrap();
        assert!(!same_bytes(&path("a"), &path("b")).unwrap());
        fs::write(path("b"), b"").unwrap();
        assert!(!same_bytes(&path("a"), &path("b")).unwrap());
    }
}
