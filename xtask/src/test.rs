//! `cargo xtask test`: everything a change has to pass, on a fresh machine too.

use std::path::PathBuf;
use std::process::Command;
use std::{env, thread};

use crate::check;
use crate::failure::Failure;
use crate::setup;
use crate::step;
use crate::workspace::Workspace;

/// One build for all crates: choosing packages would build shared dependencies again.
const TESTS: [&str; 2] = ["test", "--workspace"];

/// How many tests run at once: most of them wait for processes, so twice as many as there are cores.
const THREADS: &str = "RUST_TEST_THREADS";

/// Sets up, checks, builds and tests.
pub(crate) fn run(workspace: &Workspace) -> Result<(), Failure> {
    setup::run(workspace)?;
    check::without_building(workspace)?;
    step::command(
        "build with lints",
        linted(workspace).args(TESTS).args(["--quiet", "--no-run"]),
    )?;
    let mut tests = linted(workspace);
    if let Some(cores) = thread::available_parallelism()
        .ok()
        .filter(|_| env::var_os(THREADS).is_none())
    {
        tests.env(THREADS, (2 * cores.get()).to_string());
    }
    step::command("tests", tests.args(TESTS))?;
    check::documentation(workspace)?;
    println!("all passed");
    Ok(())
}

/// Cargo with Clippy as the compiler of our own crates, warnings denied: it lints what it builds.
///
/// `cargo clippy` has build products of its own, so that linting first and building afterwards
/// compiles everything, dependencies included, twice.
fn linted(workspace: &Workspace) -> Command {
    let mut cargo = workspace.cargo();
    let beside = PathBuf::from(cargo.get_program()).with_file_name("clippy-driver");
    let driver = if beside.is_file() {
        beside
    } else {
        PathBuf::from("clippy-driver")
    };
    cargo
        .env("RUSTC_WORKSPACE_WRAPPER", driver)
        // How `cargo clippy` hands arguments on.
        .env(
            "CLIPPY_ARGS",
            "--deny__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__",
        )
        // For the build script of `accelerate-torch`, which compiles nothing for a mere check.
        .env("ACCELERATE_LINTED_BUILD", "1");
    cargo
}
