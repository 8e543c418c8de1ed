//! What can go wrong with a tracker, said so that it can be repaired.

use std::io;
use std::path::{Path, PathBuf};

/// The result of tracking.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something cannot be tracked or read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder cannot be used.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// What was to be done.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written whole.
    #[error(transparent)]
    File(#[from] accelerate_formats::Error),
    /// There is no run in a folder.
    #[error(
        "there is no run in `{}`: expected a file `run.json`; name the folder of one run, \
         as the tracker `local` makes them",
        path.display()
    )]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// A file of a run is not what it should be.
    #[error("cannot read `{}`: expected {expected}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was expected.
        expected: &'static str,
        /// What the parser said.
        #[source]
        source: serde_json::Error,
    },
    /// Nobody knows a tracker of this name.
    #[error("there is no tracker `{name}`; known are {known}")]
    UnknownTracker {
        /// The name.
        name: String,
        /// The names there are, with what each of them needs.
        known: String,
    },
    /// A tracker writes files and was not told where.
    #[error("Logging with `{name}` requires a `logging_dir`; set `project_dir` or `logging_dir`")]
    NoLoggingDirectory {
        /// The tracker.
        name: String,
    },
    /// A tracker lacks a key, an address or something else that it cannot do without.
    #[error("the tracker `{name}` is not available: {needs}")]
    Unavailable {
        /// The tracker.
        name: &'static str,
        /// What it needs.
        needs: String,
    },
    /// A tracker was used before it was started, or after it was finished.
    #[error(
        "the tracker `{name}` is not running; call `init_trackers` before, and nothing after `end_training`"
    )]
    NotRunning {
        /// The tracker.
        name: &'static str,
    },
    /// A tracker has no place for something.
    #[error("the tracker `{name}` does not take {what}")]
    Unsupported {
        /// The tracker.
        name: String,
        /// What it was given.
        what: &'static str,
    },
    /// A value is not of the kind that is needed.
    #[error("`{name}`: expected {expected}, found {found}")]
    Value {
        /// The name of the value.
        name: String,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// The pixels of an image do not fit its size.
    #[error("an image of {width} by {height} needs {expected} bytes, found {found}")]
    ImageSize {
        /// Its width.
        width: u32,
        /// Its height.
        height: u32,
        /// The bytes it needs.
        expected: usize,
        /// The bytes there are.
        found: usize,
    },
    /// An image cannot be packed.
    #[error("cannot pack an image as PNG")]
    Png {
        /// What the packer said.
        #[source]
        source: png::EncodingError,
    },
    /// The rows of a table have other numbers of cells than it has columns.
    #[error("row {row} of a table has {found} cells, but it has {expected} columns")]
    Table {
        /// The row, from 0.
        row: usize,
        /// The number of columns.
        expected: usize,
        /// The number of cells.
        found: usize,
    },
    /// A service does not answer, or refuses.
    #[error("{service}: {action} failed: {message}")]
    Service {
        /// The service.
        service: &'static str,
        /// What was asked of it.
        action: String,
        /// What came back, without secrets.
        message: String,
    },
    /// A tracker of the program's own failed.
    #[error("the tracker `{name}` failed")]
    Own {
        /// The tracker.
        name: String,
        /// Its error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// An error of the file system at `path`.
pub(crate) fn io_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io {
        action,
        path: path.to_owned(),
        source,
    }
}
