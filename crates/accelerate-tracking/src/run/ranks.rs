//! What each rank measured of its own steps.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::lines::{LineFile, LineWriter};
use super::{RANKS_FOLDER, RunInfo};
use crate::clock::unix_seconds;
use crate::error::{Result, io_error};

/// Where the time of a step went, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeSplit {
    /// Waiting for a batch.
    pub data_wait: f64,
    /// Forward, backward and the optimizer.
    pub compute: f64,
    /// Waiting for other ranks.
    pub communication: f64,
    /// The rest.
    pub other: f64,
}

/// A line of `ranks/RANK.jsonl`: one step, or several of which these are the means.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepMetrics {
    /// When the step ended, in seconds since the start of the run.
    pub t: f64,
    /// The number of the step.
    pub step: i64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Where the time went.
    pub split: TimeSplit,
    /// Samples of this rank in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_second: Option<f64>,
    /// Tokens of this rank in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f64>,
    /// The memory in use, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The most memory that was in use, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// The norm of all gradients; it may be no number.
    #[serde(with = "any_number", skip_serializing_if = "Option::is_none")]
    pub gradient_norm: Option<f64>,
    /// By what the loss is multiplied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f64>,
    /// The last warning on this rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// Numbers that need not be finite, in JSON.
mod any_number {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::value::Value;

    pub(super) fn serialize<S: Serializer>(
        number: &Option<f64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        number.map(Value::Float).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<f64>, D::Error> {
        let value = Option::<Value>::deserialize(deserializer)?;
        Ok(value.and_then(|value| value.as_number()))
    }
}

/// Writes what one rank measures into the folder of a run. Each rank has its own.
#[derive(Debug)]
pub struct RankWriter {
    lines: LineWriter,
    started: f64,
}

impl RankWriter {
    /// Of this rank, into the folder of a run that is there already.
    ///
    /// # Errors
    /// [`Error::NoRun`](crate::Error::NoRun) if there is no run, [`Error::Io`](crate::Error::Io) if the
    /// folder cannot be written.
    pub fn open(run: &Path, rank: usize) -> Result<Self> {
        let started = RunInfo::read(run)?.started;
        let folder = run.join(RANKS_FOLDER);
        fs::create_dir_all(&folder).map_err(|source| io_error("make", &folder, source))?;
        Ok(Self {
            lines: LineWriter::open(folder.join(format!("{rank}.jsonl")))?,
            started,
        })
    }

    /// Seconds since the start of the run.
    #[must_use]
    pub fn elapsed(&self) -> f64 {
        unix_seconds() - self.started
    }

    /// Writes one line.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if it cannot be written; later ones may be again.
    pub fn write(&mut self, step: &StepMetrics) -> Result<()> {
        self.lines.write(step).map(drop)
    }
}

/// Follows what one rank measures.
#[derive(Debug)]
pub struct RankReader {
    rank: usize,
    lines: LineFile,
    latest: Option<StepMetrics>,
}

impl RankReader {
    /// All ranks that have written something, by rank.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the folder is there and cannot be looked into.
    pub fn all(run: &Path) -> Result<Vec<Self>> {
        let folder = run.join(RANKS_FOLDER);
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|source| io_error("look into", &folder, source))?,
        };
        let mut found: Vec<Self> = entries
            .filter_map(|entry| Self::of_file(entry.ok()?.path()))
            .collect();
        found.sort_by_key(|reader| reader.rank);
        Ok(found)
    }

    fn of_file(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        Some(Self {
            rank: name.strip_suffix(".jsonl")?.parse().ok()?,
            lines: LineFile::new(path),
            latest: None,
        })
    }

    /// Which rank it is.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The last step that was read.
    #[must_use]
    pub fn latest(&self) -> Option<&StepMetrics> {
        self.latest.as_ref()
    }

    /// The steps that have come since the last call. Lines that cannot be read are left out.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the file cannot be read.
    pub fn poll(&mut self) -> Result<Vec<StepMetrics>> {
        let mut steps: Vec<StepMetrics> = Vec::new();
        self.lines
            .poll(|line, _| steps.extend(serde_json::from_slice(line).ok()))?;
        if let Some(last) = steps.last() {
            self.latest = Some(last.clone());
        }
        Ok(steps)
    }
}
