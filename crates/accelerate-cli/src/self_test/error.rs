//! Why the self-test could not run, or did not pass.

use std::{io, path::PathBuf, process::ExitCode};

use accelerate_plan::Hint;

use crate::launch::Exit;

/// Why `accelerate test` does not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SelfTestError {
    #[error("cannot find this executable itself")]
    Launcher { source: io::Error },

    #[error("cannot read the surroundings")]
    Variable(#[from] accelerate_plan::Error),

    #[error("no program `accelerate-selftest` in `{}` or on the search path", beside.display())]
    ProgramMissing {
        /// The folder of this executable.
        beside: PathBuf,
    },

    #[error("`{variable}` names `{}`, which is no executable file", path.display())]
    ProgramUnusable {
        variable: &'static str,
        path: PathBuf,
    },

    #[error("no Python interpreter{}", asked.as_ref().map(|path| format!(" `{}`", path.display())).unwrap_or_default())]
    InterpreterMissing {
        /// The one that was asked for.
        asked: Option<PathBuf>,
    },

    #[error(
        "the Python package `accelerate` with its test script is not installed for `{}`: looked into {}",
        interpreter.display(),
        folders.iter().map(|folder| format!("`{}`", folder.display())).collect::<Vec<_>>().join(", ")
    )]
    ScriptMissing {
        interpreter: PathBuf,
        /// The folders with packages.
        folders: Vec<PathBuf>,
    },

    #[error("cannot start `{command}`")]
    Start { command: String, source: io::Error },

    #[error("the self-test failed: `{command}` ended with {exit}")]
    Failed { command: String, exit: Exit },
}

/// What the program returns when a stage takes too long.
const TIMED_OUT: u8 = 3;

impl SelfTestError {
    /// The code of the self-test itself, 1 for what the user can change, 70 for the rest.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Failed { exit, .. } => exit.code(),
            Self::Launcher { .. } | Self::Start { .. } => 70,
            _ => 1,
        })
    }
}

impl Hint for SelfTestError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Variable(error) => return error.hint(),
            Self::ProgramMissing { .. } => {
                "install it with `cargo install accelerate-selftest` (in the sources: `cargo build --release -p \
                 accelerate-selftest`), name it in \
                 `ACCELERATE_SELFTEST`, or test an installed Python package with `--python`"
            }
            Self::ProgramUnusable { .. } => "correct the variable, or unset it",
            Self::InterpreterMissing { .. } => {
                "activate an environment, or name the interpreter: `--python=PATH`"
            }
            Self::ScriptMissing { .. } => {
                "install the package there (`pip install accelerate`), name another interpreter \
                 (`--python=PATH`), or give the script to `accelerate launch`"
            }
            Self::Failed {
                exit: Exit::Code(TIMED_OUT),
                ..
            } => {
                "a stage took longer than `--timeout` allows: the report above says which rank is \
                 behind"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}
