//! `cargo xtask parity`: the recorded numbers against the original as it is installed, and the tests
//! in which Rust and Python processes work together.

use std::process::Command;

use crate::failure::Failure;
use crate::python_env::PythonEnv;
use crate::setup;
use crate::step;
use crate::workspace::Workspace;

/// Tells the tests which Python to start; without it they skip, saying so.
const PYTHON_VARIABLE: &str = "ACCELERATE_PARITY_PYTHON";

/// The tests that start Python, and those that read the recorded numbers.
const TESTS: [&[&str]; 2] = [
    &["build", "--package", "accelerate-cli"],
    &[
        "test",
        "--package=accelerate-torch",
        "--package=accelerate-rs",
        "--package=accelerate-models",
        "parity",
        "--",
        "--nocapture",
    ],
];

/// Records again, compares, and runs the tests of both kinds.
pub(crate) fn run(workspace: &Workspace) -> Result<(), Failure> {
    setup::run(workspace)?;
    let env = PythonEnv::set_up(workspace)?;
    let python = env.python();
    step::command(
        "record again and compare",
        Command::new(&python)
            .arg(workspace.path("tests/parity/record.py"))
            .arg("--check")
            .arg(workspace.path("tests/parity/fixtures"))
            .current_dir(workspace.path("")),
    )?;
    for words in TESTS {
        step::command(
            &format!("cargo {}", words.join(" ")),
            workspace.cargo().args(words).env(PYTHON_VARIABLE, &python),
        )?;
    }
    Ok(())
}
