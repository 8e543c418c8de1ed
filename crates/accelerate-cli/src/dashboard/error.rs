//! Why the page of runs cannot be served, and what to do.

use std::{io, path::PathBuf, process::ExitCode};

use accelerate_plan::Hint;

pub(crate) type Result<T, E = DashboardError> = std::result::Result<T, E>;

/// Why the page of runs cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DashboardError {
    #[error("cannot read the folder `{}`", path.display())]
    Folder { path: PathBuf, source: io::Error },

    #[error("cannot listen at `{host}`, port {port}")]
    Listen {
        host: String,
        port: u16,
        source: io::Error,
    },

    #[error("cannot take connections any more")]
    Serve { source: io::Error },
}

impl DashboardError {
    /// 1 for what the user can change, 70 for the rest.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Folder { .. } | Self::Listen { .. } => 1,
            Self::Serve { .. } => 70,
        })
    }
}

impl Hint for DashboardError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Folder { .. } => {
                "name the folder below which programs write their runs: their `logging_dir`"
            }
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                "another program has that port: choose one with `--port`, or any with `--port 0`"
            }
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "choose a port above 1023 with `--port`"
            }
            Self::Listen { .. } => "`--host` takes an address or a name of this machine",
            Self::Serve { .. } => return None,
        };
        Some(text.to_owned())
    }
}
