//! `cargo xtask check`: what must hold before anything is run, cheapest first.

use crate::failure::Failure;
use crate::step;
use crate::unsafe_rule;
use crate::workspace::{Member, Workspace};

/// The crates that must build, start and be installed without libtorch.
const WITHOUT_TORCH: [&str; 6] = [
    "accelerate-cli",
    "accelerate-formats",
    "accelerate-libtorch",
    "accelerate-plan",
    "accelerate-tracking",
    "xtask",
];

/// The packages that bring libtorch in.
const TORCH_PACKAGES: [&str; 3] = ["accelerate-torch", "tch", "torch-sys"];

/// Runs all checks and stops at the first that fails.
pub(crate) fn run(workspace: &Workspace) -> Result<(), Failure> {
    without_building(workspace)?;
    step::command(
        "lints",
        workspace
            .cargo()
            .args(["clippy", "--quiet", "--workspace", "--all-targets"])
            .args(["--", "--deny", "warnings"]),
    )?;
    documentation(workspace)
}

/// The checks that compile nothing.
pub(crate) fn without_building(workspace: &Workspace) -> Result<(), Failure> {
    step::command(
        "formatting",
        workspace.cargo().args(["fmt", "--all", "--check"]),
    )
    .map_err(|failure| failure.hint("run `cargo fmt --all`"))?;
    let members = workspace.metadata()?.members;
    step::step("no unsafe code outside its place", || {
        unsafe_rule::check(workspace, &members)
    })?;
    step::step("no libtorch in the light crates", || {
        check_layers(workspace, &members)
    })
}

/// Documents the libraries: a link that leads nowhere is an error.
pub(crate) fn documentation(workspace: &Workspace) -> Result<(), Failure> {
    step::command(
        "documentation",
        workspace
            .cargo()
            .args(["doc", "--quiet", "--workspace", "--lib", "--no-deps"])
            .env("RUSTDOCFLAGS", "--deny warnings"),
    )
}

/// Proves by `cargo tree` that the light crates never reach libtorch, whatever their features.
fn check_layers(workspace: &Workspace, members: &[Member]) -> Result<(), Failure> {
    for name in WITHOUT_TORCH {
        if !members.iter().any(|member| member.name == name) {
            return Err(
                Failure::new(format!("no package `{name}` in the workspace"))
                    .hint("if it has a new name, `xtask/src/check.rs` has to know it"),
            );
        }
        let tree = step::output(workspace.cargo().args([
            "tree",
            "--package",
            name,
            "--edges=normal,build",
            "--all-features",
            "--prefix=none",
            "--format={p}",
        ]))?;
        if let Some(package) = torch_package(&tree) {
            return Err(
                Failure::new(format!("`{name}` depends on `{package}`")).hint(format!(
                    "see how by `cargo tree --package {name} --all-features --invert {package}`"
                )),
            );
        }
    }
    Ok(())
}

/// The first package of a dependency list that brings libtorch in.
fn torch_package(tree: &str) -> Option<&str> {
    tree.lines()
        .filter_map(|line| line.split_whitespace().next())
        .find(|name| TORCH_PACKAGES.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_package_names_count() {
        assert_eq!(
            torch_package("a v1\naccelerate-libtorch v0.1.0 (/x)\ntchotchke v1\n"),
            None
        );
        assert_eq!(
            torch_package("a v1\ntorch-sys v0.26.0\n"),
            Some("torch-sys")
        );
    }
}
