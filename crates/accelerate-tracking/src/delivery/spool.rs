//! The folder of what is not delivered yet.
//!
//! `records.jsonl` holds all records, `session.json` how far they are delivered and what it takes to go
//! on, `refused.jsonl` what the service will never take, `files/` what records speak of.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use accelerate_formats::AtomicFile;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::error::{Error, Result, io_error};
use crate::identifier;
use crate::run::lines::LineWriter;

const RECORDS: &str = "records.jsonl";
const SESSION: &str = "session.json";
const REFUSED: &str = "refused.jsonl";
const LOCK: &str = ".lock";
/// Where files that records speak of lie.
pub(super) const FILES: &str = "files";

/// How far the records of a folder are delivered.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Session {
    /// The tracker.
    pub(super) service: String,
    /// What its service has to know to go on.
    pub(super) session: Json,
    /// How many bytes of records are delivered.
    pub(super) bytes: u64,
    /// How many records those are.
    pub(super) records: u64,
}

/// The writing side.
#[derive(Debug)]
pub(super) struct Spool {
    folder: PathBuf,
    records: LineWriter,
    files: u64,
    lock: Arc<File>,
}

impl Spool {
    /// A new folder in `root`.
    pub(super) fn create(root: &Path, service: &str, session: &Json) -> Result<Self> {
        let folder = root.join(format!("{service}-{}", identifier::alphanumeric(12)));
        fs::create_dir_all(&folder).map_err(|source| io_error("make", &folder, source))?;
        let lock = lock(&folder)?
            .ok_or_else(|| io_error("lock", &folder, std::io::ErrorKind::WouldBlock.into()))?;
        let session = Session {
            service: service.to_owned(),
            session: session.clone(),
            ..Session::default()
        };
        write_session(&folder, &session)?;
        Ok(Self {
            records: LineWriter::open(folder.join(RECORDS))?,
            folder,
            files: 0,
            lock: Arc::new(lock),
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether something is left to be delivered.
    pub(super) fn is_left(&self) -> bool {
        self.folder.join(SESSION).exists()
    }

    /// The reading side, for another thread.
    pub(super) fn reader(&self) -> Result<SpoolReader> {
        SpoolReader::of(self.folder.clone(), Arc::clone(&self.lock))
    }

    pub(super) fn write(&mut self, record: &Json) -> Result<()> {
        self.records.write(record).map(drop)
    }

    pub(super) fn file(&mut self, ending: &str, bytes: &[u8]) -> Result<String> {
        let folder = self.folder.join(FILES);
        fs::create_dir_all(&folder).map_err(|source| io_error("make", &folder, source))?;
        let name = format!("{:06}.{ending}", self.files);
        self.files += 1;
        let path = folder.join(&name);
        fs::write(&path, bytes).map_err(|source| io_error("write", &path, source))?;
        Ok(name)
    }
}

/// The reading side.
#[derive(Debug)]
pub(super) struct SpoolReader {
    folder: PathBuf,
    session: Session,
    /// How many bytes the batch that was read last takes, and how many records.
    batch: (u64, u64),
    _lock: Arc<File>,
}

/// How much goes into one batch.
const BATCH_RECORDS: usize = 500;
const BATCH_BYTES: u64 = 800_000;

impl SpoolReader {
    /// Of a folder that no process holds; none for one that somebody holds.
    pub(super) fn open(folder: PathBuf) -> Result<Option<Self>> {
        match lock(&folder)? {
            Some(lock) => Self::of(folder, Arc::new(lock)).map(Some),
            None => Ok(None),
        }
    }

    fn of(folder: PathBuf, lock: Arc<File>) -> Result<Self> {
        let path = folder.join(SESSION);
        let text = fs::read(&path).map_err(|source| io_error("read", &path, source))?;
        let session = serde_json::from_slice(&text).map_err(|source| Error::Damaged {
            path,
            expected: "a JSON object that says how far records are delivered",
            source,
        })?;
        Ok(Self {
            folder,
            session,
            batch: (0, 0),
            _lock: lock,
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// The records that come next, at least one if there is one that is whole.
    pub(super) fn next_batch(&mut self) -> Result<Vec<Json>> {
        let path = self.folder.join(RECORDS);
        let failed = |source| io_error("read", &path, source);
        let mut file = File::open(&path).map_err(failed)?;
        file.seek(SeekFrom::Start(self.session.bytes))
            .map_err(failed)?;
        let mut file = BufReader::new(file);
        let (mut records, mut bytes, mut line) = (Vec::new(), 0, Vec::new());
        while records.len() < BATCH_RECORDS && bytes < BATCH_BYTES {
            line.clear();
            let read = file.read_until(b'\n', &mut line).map_err(failed)?;
            if line.last() != Some(&b'\n') {
                break;
            }
            bytes += read as u64;
            // Half a line of a process that was killed says nothing.
            records.extend(serde_json::from_slice::<Json>(&line).ok());
        }
        self.batch = (bytes, records.len() as u64);
        Ok(records)
    }

    /// Writes down that the last batch is delivered, and what the service knows now.
    pub(super) fn delivered(&mut self, session: Json) -> Result<()> {
        let (bytes, records) = std::mem::take(&mut self.batch);
        self.session.bytes += bytes;
        self.session.records += records;
        self.keep(session)
    }

    /// Writes down what the service knows now.
    pub(super) fn keep(&mut self, session: Json) -> Result<()> {
        self.session.session = session;
        write_session(&self.folder, &self.session)
    }

    /// Keeps a record that the service will never take, with its reason.
    pub(super) fn refused(&self, record: &Json, reason: &str) -> Result<()> {
        let line = json!({ "reason": reason, "record": record });
        LineWriter::open(self.folder.join(REFUSED))?
            .write(&line)
            .map(drop)
    }

    /// Ends the folder: removes it, or what is delivered of it if something was refused.
    pub(super) fn remove(self) -> Result<()> {
        let folder = &self.folder;
        let failed = |source| io_error("remove", folder, source);
        if !folder.join(REFUSED).exists() {
            return fs::remove_dir_all(folder).map_err(failed);
        }
        for name in [RECORDS, SESSION] {
            fs::remove_file(folder.join(name)).map_err(failed)?;
        }
        Ok(())
    }
}

fn write_session(folder: &Path, session: &Session) -> Result<()> {
    let path = folder.join(SESSION);
    let mut file = AtomicFile::create(&path)?;
    serde_json::to_writer(&mut file, session).map_err(|source| Error::Damaged {
        path: path.clone(),
        expected: "something that JSON can hold",
        source,
    })?;
    file.flush()
        .map_err(|source| io_error("write", &path, source))?;
    // Whole or absent if this process is killed; waiting for the disk at each batch would be slow.
    Ok(file.commit_unflushed()?)
}

/// The lock of a folder, unless somebody holds it.
fn lock(folder: &Path) -> Result<Option<File>> {
    let path = folder.join(LOCK);
    let file = File::create(&path).map_err(|source| io_error("make", &path, source))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(source)) => Err(io_error("lock", &path, source)),
    }
}
