//! How a run ended, or whether it goes on.

use std::fs::{File, TryLockError};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{FINISHED_FILE, LOCK_FILE};
use crate::error::{Result, io_error};

/// How a run ended, as it says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It came to its end.
    #[default]
    Finished,
    /// It broke off.
    Failed,
    /// A word of a newer version.
    #[serde(other)]
    Other,
}

/// What stands in `finished.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ending {
    /// How it ended.
    pub outcome: Outcome,
    /// When, in seconds since the start of the run.
    pub t: f64,
    /// Why, if it broke off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Whether a run goes on.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum RunStatus {
    /// A process holds it.
    Running,
    /// It says how it ended.
    Ended(Ending),
    /// It ended without a word: it was killed, or its machine went away.
    Lost,
    /// It does not say, and the file system does not tell whether a process holds it.
    Unknown,
}

impl RunStatus {
    /// That of the run in `folder`.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if its end is written down and cannot be read.
    pub fn of(folder: &Path) -> Result<Self> {
        let path = folder.join(FINISHED_FILE);
        match std::fs::read(&path) {
            // Written whole or not at all: what is no JSON comes from elsewhere.
            Ok(text) => Ok(serde_json::from_slice(&text).map_or(Self::Unknown, Self::Ended)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(held(folder)),
            Err(source) => Err(io_error("read", &path, source)),
        }
    }
}

/// Whether the writer's lock is held.
fn held(folder: &Path) -> RunStatus {
    let Ok(lock) = File::open(folder.join(LOCK_FILE)) else {
        return RunStatus::Unknown;
    };
    match lock.try_lock_shared() {
        Ok(()) => RunStatus::Lost,
        Err(TryLockError::WouldBlock) => RunStatus::Running,
        Err(TryLockError::Error(_)) => RunStatus::Unknown,
    }
}
