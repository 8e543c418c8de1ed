//! What a training did, step by step: a file for each rank, in which each line is one step of an
//! optimizer as JSON.
//!
//! A record holds digests, not values, but for losses. Two runs of one program are compared by it.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Names and digests, or short texts, in the order of whatever they describe.
pub type Digests = Vec<(String, String)>;

/// What one rank did up to a step of an optimizer, since the step before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRecord {
    /// Counts from 1 in each process.
    pub step: u64,
    /// The batches whose losses went backward.
    pub batches: Vec<BatchRecord>,
    /// Other batches, such as those of an evaluation.
    pub other_batches: Vec<BatchRecord>,
    /// The bits of the losses, as float64, in order.
    pub losses: Vec<u64>,
    /// Whether the losses are sums over samples and not means.
    pub losses_are_sums: bool,
    /// The states of the random generators when the optimizer was done.
    pub generators: Digests,
    /// The weights and buffers after the step.
    pub weights: Digests,
    /// The settings and the state of the optimizer after the step.
    pub optimizer: Digests,
    /// The state of the loss scale after the step.
    pub loss_scale: Digests,
}

/// One batch that a rank was handed out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchRecord {
    /// The epoch of the loader, from 0.
    pub epoch: u64,
    /// The samples by number, where the loader has an index.
    pub indices: Option<Vec<u64>>,
    /// The content of each sample, or of the batch as a whole.
    pub rows: Vec<String>,
    /// How many samples of this last batch of all ranks together are no repetition; none if it is
    /// not the last one, or full.
    pub remainder: Option<u64>,
    /// The states of the random generators when it was handed out.
    pub generators: Digests,
}

impl StepRecord {
    /// The losses.
    pub fn losses(&self) -> impl Iterator<Item = f64> {
        self.losses.iter().map(|&bits| f64::from_bits(bits))
    }
}

/// Why records cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepRecordsError {
    /// The system refuses.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// `write` or `read`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A line is no record.
    #[error("`{}`, line {line}: no record of a step", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A record cannot be written down.
    #[error("cannot write down a step")]
    Record(#[source] serde_json::Error),
    /// Nobody recorded anything.
    #[error("no process recorded a step in `{}`", folder.display())]
    None {
        /// Where.
        folder: PathBuf,
    },
}

fn file_of(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("rank_{rank}.jsonl"))
}

/// The records of one rank while they are written.
#[derive(Debug)]
pub struct StepWriter {
    path: PathBuf,
    file: File,
}

impl StepWriter {
    /// Begins the file of `rank` in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// [`StepRecordsError::Io`] if the system refuses.
    pub fn create(folder: &Path, rank: usize) -> Result<Self, StepRecordsError> {
        let path = file_of(folder, rank);
        let file = fs::create_dir_all(folder).and_then(|()| File::create(&path));
        match file {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(failed("write", &path)(source)),
        }
    }

    /// Adds one step; it is in the file when this returns.
    ///
    /// # Errors
    /// [`StepRecordsError::Io`] if the system refuses.
    pub fn push(&mut self, record: &StepRecord) -> Result<(), StepRecordsError> {
        let mut line = serde_json::to_vec(record).map_err(StepRecordsError::Record)?;
        line.push(b'\n');
        let written = self.file.write_all(&line);
        written.map_err(failed("write", &self.path))
    }
}

/// The records of all ranks in `folder`, by rank.
///
/// # Errors
/// [`StepRecordsError::None`] if there is no file of rank 0; a file that cannot be read, or a line
/// that is no record.
pub fn read(folder: &Path) -> Result<Vec<Vec<StepRecord>>, StepRecordsError> {
    let files = (0..).map(|rank| file_of(folder, rank));
    let ranks: Result<Vec<_>, _> = files
        .take_while(|path| path.exists())
        .map(|path| read_rank(&path))
        .collect();
    match ranks? {
        none if none.is_empty() => Err(StepRecordsError::None {
            folder: folder.to_owned(),
        }),
        ranks => Ok(ranks),
    }
}

fn read_rank(path: &Path) -> Result<Vec<StepRecord>, StepRecordsError> {
    let file = File::open(path).map_err(failed("read", path))?;
    let lines = BufReader::new(file).lines();
    let record = |(line, text): (usize, io::Result<String>)| {
        let text = text.map_err(failed("read", path))?;
        serde_json::from_str(&text).map_err(|source| StepRecordsError::Line {
            path: path.to_owned(),
            line,
            source,
        })
    };
    (1..).zip(lines).map(record).collect()
}

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> StepRecordsError {
    let path = path.to_owned();
    move |source| StepRecordsError::Io {
        action,
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_by_rank() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("records");
        assert!(matches!(read(&folder), Err(StepRecordsError::None { .. })));
        let record = |step, loss: f64| StepRecord {
            step,
            losses: vec![loss.to_bits()],
            weights: vec![("a.weight".to_owned(), "0123".to_owned())],
            ..StepRecord::default()
        };
        for rank in 0..2 {
            let mut writer = StepWriter::create(&folder, rank).unwrap();
            writer.push(&record(1, f64::NAN)).unwrap();
            writer.push(&record(2, 0.1 + rank as f64)).unwrap();
        }
        let found = read(&folder).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[1][1], record(2, 1.1));
        assert!(found[0][0].losses().all(f64::is_nan));
        fs::write(file_of(&folder, 0), "{}\n").unwrap();
        let error = read(&folder).unwrap_err();
        assert!(
            error.to_string().ends_with("line 1: no record of a step"),
            "{error}"
        );
    }
}
