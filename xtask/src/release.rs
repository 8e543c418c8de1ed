//! Release builds of what tasks run.

use crate::failure::Failure;
use crate::step;
use crate::workspace::Workspace;

/// Builds binaries and examples, which are named as cargo has them: `["--bin", "accelerate"]`.
///
/// All of them as parts of the whole workspace: choosing packages changes the features of shared
/// dependencies, and each choice would build these again.
pub(crate) fn build(workspace: &Workspace, targets: &[&str]) -> Result<(), Failure> {
    step::command(
        &format!("build --release {}", targets.join(" ")),
        workspace
            .cargo()
            .args(["build", "--release", "--workspace"])
            .args(targets),
    )
}
