//! `cargo xtask parity`: the recorded numbers against the original as it is installed, and the tests
//! in which Rust and Python processes work together, or that drive a browser (`chromium`, where it is
//! installed).

use std::process::Command;

use crate::failure::Failure;
use crate::python_env::PythonEnv;
use crate::setup;
use crate::step;
use crate::workspace::Workspace;

/// Tells the tests which Python to start; without it they skip, saying so.
const PYTHON_VARIABLE: &str = "ACCELERATE_PARITY_PYTHON";

/// The tests that start Python, and those that read the recorded numbers.
///
/// The whole workspace, since choosing packages would build shared dependencies again.
const TESTS: [&str; 5] = ["test", "--workspace", "parity", "--", "--nocapture"];

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
    step::command(
        &format!("cargo {}", TESTS.join(" ")),
        workspace.cargo().args(TESTS).env(PYTHON_VARIABLE, &python),
    )
}
