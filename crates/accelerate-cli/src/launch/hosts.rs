//! Starts a job on several machines through a launcher that is installed there already.
//!
//! - [`mpirun`]: `mpirun` with a file of hosts; it starts the ranks.
//! - [`deepspeed`]: a DeepSpeed hostfile, and pdsh, an MPI or SLURM as the way to its hosts.
//!
//! Both only build a command, an [`Outer`]. Starting it is the work of the launcher, which treats it
//! as a job of one process: it gets a keeper, signals reach it, its exit code is passed on. The
//! variables of the job are in its overlay and in its arguments.

pub(crate) mod deepspeed;
mod error;
mod machine;
pub(crate) mod mpi;
pub(crate) mod mpirun;

use accelerate_plan::{env::EnvOverlay, launch::Program};

pub(crate) use error::HostsError;
pub(crate) use machine::Machine;

use deepspeed::export::EnvFile;

pub(crate) type Result<T, E = HostsError> = std::result::Result<T, E>;

/// A command that starts a job on several machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outer {
    /// The command; its name says what it runs and by which launcher.
    pub(crate) program: Program,
    /// What the command is told on top of what it inherits.
    pub(crate) overlay: EnvOverlay,
    /// What was decided or left out, one line each.
    pub(crate) notes: Vec<String>,
    /// The file of variables that goes with it.
    pub(crate) env_file: Option<EnvFile>,
}

/// Makes ready what the command needs, and gives it as the program of a single-process plan.
///
/// # Errors
/// [`HostsError::EnvFileUnwritable`].
pub(crate) fn outer_program(outer: Outer) -> Result<(Program, EnvOverlay)> {
    if let Some(file) = &outer.env_file {
        file.write()?;
    }
    Ok((outer.program, outer.overlay))
}

/// The command `words`, named after the program that it runs in the end.
fn through(launcher: &std::path::Path, words: Vec<std::ffi::OsString>, inner: &Program) -> Program {
    let by = launcher.file_name().unwrap_or(launcher.as_os_str());
    Program {
        name: format!("{} through {}", inner.name, by.display()),
        executable: launcher.to_owned(),
        arguments: words,
    }
}

/// The words that start a program.
fn words(program: &Program) -> impl Iterator<Item = std::ffi::OsString> {
    std::iter::once(program.executable.clone().into_os_string())
        .chain(program.arguments.iter().cloned())
}

#[cfg(test)]
pub(crate) mod stand_in;
