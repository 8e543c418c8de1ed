//! `cargo xtask test`: everything a change has to pass, on a fresh machine too.

use crate::check;
use crate::failure::Failure;
use crate::setup;
use crate::step;
use crate::workspace::Workspace;

/// One build for all crates: choosing packages would build shared dependencies again.
const TESTS: [&str; 2] = ["test", "--workspace"];

/// Sets up, checks, builds and tests.
pub(crate) fn run(workspace: &Workspace) -> Result<(), Failure> {
    setup::run(workspace)?;
    check::run(workspace)?;
    step::command("tests", workspace.cargo().args(TESTS))?;
    println!("all passed");
    Ok(())
}
