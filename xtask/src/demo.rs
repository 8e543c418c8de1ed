//! `cargo xtask demo`: the sentiment example, from nothing to a trained model.

use std::path::Path;
use std::process::Command;

use crate::failure::Failure;
use crate::release;
use crate::setup;
use crate::step;
use crate::workspace::Workspace;

/// What has to be built.
const BUILD: [&str; 4] = ["--bin", "accelerate", "--bin", "nlp"];

/// What the example needs to know, relative to the workspace.
///
/// Lines of reviews are short: 28 tokens hold most of them whole (with 24 the accuracy falls below
/// 0.78). Lines of about the same length in a batch need less padding: an epoch takes about 5 minutes
/// on two slow cores.
const ARGUMENTS: [&str; 9] = [
    "--model",
    ".data/minilm",
    "--data",
    ".data/movie-reviews/movieReviewSnippets_GroundTruth.txt",
    "--output",
    "target/demo",
    "--max-length",
    "28",
    "--group-by-length",
];

/// Sets up, builds and trains.
pub(crate) fn run(workspace: &Workspace) -> Result<(), Failure> {
    setup::run(workspace)?;
    build(workspace)?;
    let binaries = workspace.metadata()?.target_dir.join("release");
    step::command(
        "train on 2 processes",
        launch(&binaries)
            .args(ARGUMENTS)
            .current_dir(workspace.path("")),
    )
}

/// Builds the launcher and the example.
pub(crate) fn build(workspace: &Workspace) -> Result<(), Failure> {
    release::build(workspace, &BUILD)
}

/// The example on 2 processes; its own arguments follow.
pub(crate) fn launch(binaries: &Path) -> Command {
    let mut command = Command::new(binaries.join("accelerate"));
    command
        .args(["launch", "--cpu", "--num_processes", "2"])
        .arg(binaries.join("nlp"));
    command
}
