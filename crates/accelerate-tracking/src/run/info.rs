//! What a run is.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use accelerate_formats::AtomicFile;
use serde::{Deserialize, Serialize};

use super::RUN_FILE;
use crate::error::{Error, Result, io_error};
use crate::value::Values;

/// The version of run folders that this crate writes.
pub const FORMAT_VERSION: u32 = 1;

/// What stands in `run.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunInfo {
    /// The version of the folder's format.
    pub format_version: u32,
    /// The name of the run, which is that of its folder.
    pub id: String,
    /// What the run belongs to.
    pub project: String,
    /// When it began, in seconds since the start of 1970.
    pub started: f64,
    /// The program.
    pub program: String,
    /// The machine of rank 0.
    pub host: String,
    /// The process of rank 0.
    pub process: u32,
    /// The number of processes in the job.
    pub world_size: usize,
    /// Labels.
    pub tags: Vec<String>,
    /// The settings of the run, flat.
    pub settings: Values,
}

impl RunInfo {
    /// Reads that of the run in `folder`.
    ///
    /// # Errors
    /// [`Error::NoRun`] if there is none, [`Error::Damaged`] if it is not JSON.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(RUN_FILE);
        let text = fs::read(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => Error::NoRun {
                path: folder.to_owned(),
            },
            _ => io_error("read", &path, source),
        })?;
        serde_json::from_slice(&text).map_err(|source| Error::Damaged {
            path,
            expected: "a JSON object that describes a run",
            source,
        })
    }

    /// Whether a newer version of this library wrote the folder: then some of it may not be shown.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        self.format_version > FORMAT_VERSION
    }

    /// Writes it into `folder`, whole or not at all.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        write_json(folder.join(RUN_FILE), self)
    }
}

/// Writes a small JSON file, whole or not at all.
pub(super) fn write_json(path: PathBuf, content: &impl Serialize) -> Result<()> {
    let mut file = AtomicFile::create(&path)?;
    let text = serde_json::to_vec_pretty(content).map_err(|source| Error::Damaged {
        path: path.clone(),
        expected: "something that JSON can hold",
        source,
    })?;
    file.write_all(&text)
        .and_then(|()| file.write_all(b"\n"))
        .map_err(|source| io_error("write", &path, source))?;
    Ok(file.commit()?)
}
