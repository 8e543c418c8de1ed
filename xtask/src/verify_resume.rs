//! `cargo xtask verify-resume`: the examples, stopped in the middle of their second epoch and started
//! again, against themselves without interruption; and a saving process, killed many times.

use std::path::Path;
use std::process::Command;

use crate::failure::Failure;
use crate::release;
use crate::setup;
use crate::step;
use crate::workspace::Workspace;

/// An example, and what makes it short.
struct Job {
    program: &'static str,
    arguments: &'static str,
}

const JOBS: [Job; 3] = [
    Job {
        program: "nlp",
        arguments: "--model .data/minilm --data .data/verify-snippets.txt --held-out 12 \
                    --max-length 16 --epochs 3",
    },
    Job {
        program: "cv",
        arguments: "--planes 4 --image-size 16 --held-out 0.95 --epochs 3",
    },
    Job {
        program: "clm",
        arguments: "--vocab-size 300 --block-size 32 --layers 1 --width 32 --heads 2 --epochs 3 \
                    --hold-out-every 2 --sample-tokens 0 --data .data/verify-text.txt",
    },
];

/// What all examples are told: a step of all processes has 12 samples, on 1, 2 and 3 of them.
const RUNNING: &str = "--split-batches --batch-size 12 --fp16-on-cpu --project-dir {project_dir}";

/// What has to be built.
const BUILD: [&str; 8] = [
    "--bin",
    "accelerate",
    "--bin",
    "nlp",
    "--bin",
    "cv",
    "--bin",
    "clm",
];

/// The test that kills a process while it saves, which `cargo xtask test` does a few times.
///
/// The whole workspace, since choosing packages would build shared dependencies again.
const KILLED: [&str; 3] = [
    "test",
    "--workspace",
    "whatever_is_killed_when_there_is_a_whole_checkpoint",
];
const KILLS: [&str; 2] = ["KILLED_SAVER_KILLS", "200"];

/// Sets up, builds, compares all combinations, and kills.
pub(crate) fn run(workspace: &Workspace) -> Result<(), Failure> {
    setup::run(workspace)?;
    release::build(workspace, &BUILD)?;
    let binaries = workspace.metadata()?.target_dir.join("release");
    write(&workspace.path(".data/verify-text.txt"), &text())?;
    write(
        &workspace.path(".data/verify-snippets.txt"),
        &snippets(workspace)?,
    )?;
    for job in &JOBS {
        for processes in 1..=3 {
            for options in ["", "--gradient_accumulation_steps 2 --mixed_precision fp16"] {
                let command = job.verify(&binaries, processes, None, options);
                in_workspace(workspace, job, command)?;
            }
        }
        // Dropout and batch normalisation are drawn and taken by each rank for itself.
        for (processes, resumed) in [(2, 3), (3, 2), (3, 1)] {
            let command = job.verify(&binaries, processes, Some(resumed), "");
            in_workspace(workspace, job, command)?;
        }
    }
    let [variable, kills] = KILLS;
    step::command(
        &format!("a saving process, killed {kills} times"),
        workspace.cargo().args(KILLED).env(variable, kills),
    )
}

fn in_workspace(workspace: &Workspace, job: &Job, mut command: Command) -> Result<(), Failure> {
    command.current_dir(workspace.path(""));
    let words = command.get_args().map(|word| word.to_string_lossy());
    let options: Vec<_> = words.take_while(|word| word != "--").skip(1).collect();
    let name = format!("{}: {}", job.program, options.join(" "));
    step::command(&name, &mut command)
}

impl Job {
    fn verify(
        &self,
        binaries: &Path,
        processes: usize,
        resumed: Option<usize>,
        options: &str,
    ) -> Command {
        let mut command = Command::new(binaries.join("accelerate"));
        command.arg("verify-resume");
        if let Some(resumed) = resumed {
            command.args(["--loss_tolerance", "none", "--resume_num_processes"]);
            command.arg(resumed.to_string());
        }
        command
            .args(["--cpu", "--num_processes", &processes.to_string()])
            .args(options.split_whitespace())
            .arg("--")
            .arg(binaries.join(self.program))
            .args(self.arguments.split_whitespace())
            .args(RUNNING.split_whitespace());
        command
    }
}

/// A text of which every part is as long as another.
fn text() -> String {
    let sentences = [
        "the cat sat on the mat and looked at the moon . ",
        "a dog ran over the hill and barked at the sun . ",
        "the old man walked to the sea and sang of home . ",
    ];
    (0..300)
        .map(|number: usize| sentences[(number * number + number / 7) % 3])
        .collect()
}

/// Some of the movie reviews: 72 to train on, 12 to hold out.
fn snippets(workspace: &Workspace) -> Result<String, Failure> {
    let path = workspace.path(".data/movie-reviews/movieReviewSnippets_GroundTruth.txt");
    let all = std::fs::read_to_string(&path)
        .map_err(|error| Failure::because(format!("cannot read `{}`", path.display()), error))?;
    Ok(all.split_inclusive('\n').take(84).collect())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .map_err(|error| Failure::because(format!("cannot write `{}`", path.display()), error))
}
