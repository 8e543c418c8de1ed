//! Why a run cannot be watched, and what to do.

use std::{io, path::PathBuf, process::ExitCode};

use accelerate_plan::Hint;

pub(crate) type Result<T, E = WatchError> = std::result::Result<T, E>;

/// Why a run cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum WatchError {
    #[error("no run in `{}` or below it", folder.display())]
    NoRun { folder: PathBuf },

    #[error("no run `{name}` in `{}` or below it", folder.display())]
    NoSuchRun { name: String, folder: PathBuf },

    #[error("{count} runs in `{}` begin with `{name}`", folder.display())]
    ManyRuns {
        name: String,
        folder: PathBuf,
        count: usize,
    },

    #[error(transparent)]
    Run(#[from] accelerate_tracking::Error),

    #[error("cannot use the terminal")]
    Terminal { source: io::Error },
}

impl WatchError {
    /// 1 for what the user can change, 70 for the rest.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Terminal { .. } => 70,
            _ => 1,
        })
    }
}

impl Hint for WatchError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NoRun { .. } => {
                "name the folder below which programs write their runs (their `logging_dir`); a \
                 program writes one if it logs with the tracker `local`"
            }
            Self::NoSuchRun { .. } => {
                "give the path of a run's folder, or its name, or the beginning of its name"
            }
            Self::ManyRuns { .. } => "give more of the name",
            Self::Terminal { .. } => "`--plain` writes plain lines instead",
            Self::Run(_) => return None,
        };
        Some(text.to_owned())
    }
}
