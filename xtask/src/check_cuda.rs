//! `cargo xtask check-cuda`: everything, NCCL included, compiled and linked against a CUDA libtorch.
//!
//! Needs no GPU and runs nothing. The CUDA libtorch is the one in the Python environment of the
//! comparisons, so that its gigabytes are there once. By hand, not in CI.

use std::env;
use std::ffi::OsString;

use accelerate_libtorch::{Libtorch, Settings};

use crate::failure::Failure;
use crate::python_env::PythonEnv;
use crate::step;
use crate::workspace::Workspace;

/// What is built; the second also links every test.
const STEPS: [&[&str]; 2] = [
    &["build", "--workspace", "--all-targets"],
    &["test", "--workspace", "--no-run"],
];

/// Builds and links with CUDA, in a target folder of its own.
pub(crate) fn run(workspace: &Workspace) -> Result<(), Failure> {
    let env = PythonEnv::set_up(workspace)?;
    let libtorch = cuda_libtorch(&env)?;
    let nccl = libtorch
        .nccl_include_dir()
        .map(|dir| dir.join("nccl.h"))
        .ok_or_else(|| {
            Failure::new("the Python environment has no NCCL header")
                .hint("delete `.peers` and run the command again, on Linux")
        })?;
    println!("CUDA libtorch in `{}`", libtorch.folder.display());
    println!("NCCL header `{}`", nccl.display());

    let target = workspace.metadata()?.target_dir.join("cuda");
    let path = search_path(&env)?;
    for words in STEPS {
        step::command(
            &format!("with CUDA: cargo {}", words.join(" ")),
            workspace
                .cargo()
                .args(words)
                .env("LIBTORCH_USE_PYTORCH", "1")
                .env("VIRTUAL_ENV", env.folder())
                .env("PATH", &path)
                .env("CARGO_TARGET_DIR", &target),
        )?;
    }
    Ok(())
}

fn cuda_libtorch(env: &PythonEnv) -> Result<Libtorch, Failure> {
    let mut settings = Settings::from_env();
    settings.use_python = true;
    settings.python = env.python();
    let libtorch = Libtorch::with_settings(settings)?.check()?;
    if libtorch.cuda {
        return Ok(libtorch);
    }
    Err(Failure::new(format!(
        "the PyTorch in `{}` has no CUDA",
        libtorch.folder.display()
    ))
    .hint("PyTorch's packages have CUDA on Linux only"))
}

/// `PATH` with the environment's programs first.
fn search_path(env: &PythonEnv) -> Result<OsString, Failure> {
    let old = env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(env.folder().join("bin")).chain(env::split_paths(&old));
    env::join_paths(folders).map_err(|error| Failure::because("cannot extend `PATH`", error))
}
