//! `cargo xtask setup`: libtorch and the demo's data, each whole or absent, and nothing done twice.

mod data;
mod install;
mod libtorch;
mod stamp;

use std::env;
use std::fs::{self, File, TryLockError};
use std::process::Command;

use crate::failure::Failure;
use crate::workspace::Workspace;

pub(crate) use libtorch::TORCH_VERSION;

/// Makes the workspace ready to build and to run the demo.
pub(crate) fn run(workspace: &Workspace) -> Result<(), Failure> {
    let _only_one = lock(workspace)?;
    require_compiler()?;
    libtorch::set_up(workspace)?;
    data::set_up(workspace)
}

/// Waits until no other set-up of this workspace runs. The lock ends with the process.
fn lock(workspace: &Workspace) -> Result<File, Failure> {
    let folder = workspace.path(".data");
    let path = folder.join(".lock");
    let failed = |error| Failure::because(format!("cannot lock `{}`", path.display()), error);
    fs::create_dir_all(&folder).map_err(failed)?;
    let file = File::create(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            println!("another set-up is running, waiting for it");
            file.lock().map_err(failed)?;
            Ok(file)
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Demands the C++ compiler that the bindings will be compiled with.
fn require_compiler() -> Result<(), Failure> {
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    // `CXX` may be a launcher and a compiler, such as `ccache g++`.
    let mut words = compiler.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("c++"));
    match command.args(words).arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(no_compiler(
            &compiler,
            format!("it ended with {}", output.status),
        )),
        Err(error) => Err(no_compiler(&compiler, error)),
    }
}

fn no_compiler(
    compiler: &str,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Failure {
    Failure::because(format!("no C++ compiler: cannot run `{compiler}`"), cause)
        .hint("install one, for example `apt-get install g++`, or name it in `CXX`")
}
