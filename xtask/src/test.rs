//! `cargo xtask test`: everything a change has to pass, on a fresh machine too.

use crate::check;
use crate::failure::Failure;
use crate::setup;
use crate::step;
use crate::workspace::Workspace;

/// What is run after set-up and checks. Tests start the built `accelerate`, so it comes first.
const STEPS: [(&str, &[&str]); 2] = [
    (
        "build the launcher",
        &["build", "--package", "accelerate-cli"],
    ),
    ("tests", &["test", "--workspace"]),
];

/// Sets up, checks, builds and tests.
pub(crate) fn run(workspace: &Workspace) -> Result<(), Failure> {
    setup::run(workspace)?;
    check::run(workspace)?;
    for (name, words) in STEPS {
        step::command(name, workspace.cargo().args(words))?;
    }
    println!("all passed");
    Ok(())
}
