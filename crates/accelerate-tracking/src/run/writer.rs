//! Writing a run.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::ending::{Ending, Outcome};
use super::events::{Event, Severity};
use super::info::{FORMAT_VERSION, RunInfo, write_json};
use super::line::MetricsLine;
use super::lines::LineWriter;
use super::media::{self, Medium, MediumKind};
use super::summary::{Point, Summary};
use super::{EVENTS_FILE, FINISHED_FILE, INDEX_FILE, LOCK_FILE, MEDIA_FILE, METRICS_FILE, index};
use crate::clock::{Moment, since_epoch, unix_seconds};
use crate::error::{Result, io_error};
use crate::identifier;
use crate::media::{Image, Table};
use crate::settings::flatten;
use crate::value::Values;

/// Writes the folder of one run. Only rank 0 has one; see [`RankWriter`](super::RankWriter).
#[derive(Debug)]
pub struct RunWriter {
    folder: PathBuf,
    info: RunInfo,
    metrics: LineWriter,
    index: Option<IndexWriter>,
    events: LineWriter,
    media: LineWriter,
    media_count: u64,
    /// Held while this lives, and let go by the system if the process is killed.
    _lock: File,
}

/// Keeps the summaries beside the metrics.
#[derive(Debug)]
struct IndexWriter {
    file: File,
    summary: Summary,
    written_names: usize,
}

impl RunWriter {
    /// Begins a run in a new folder of `root`, named by the time.
    ///
    /// Of `info`, what the folder decides is filled in here: version, name, start and process.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the folder cannot be made or written.
    pub fn create(root: &Path, info: RunInfo) -> Result<Self> {
        fs::create_dir_all(root).map_err(|source| io_error("make", root, source))?;
        let id = format!(
            "{}-{}",
            Moment::at(since_epoch()).compact('-'),
            identifier::alphanumeric(6)
        );
        let folder = root.join(&id);
        fs::create_dir(&folder).map_err(|source| io_error("make", &folder, source))?;
        let lock = lock(&folder)?;
        let info = RunInfo {
            format_version: FORMAT_VERSION,
            id,
            started: unix_seconds(),
            process: std::process::id(),
            ..info
        };
        info.write(&folder)?;
        Ok(Self {
            metrics: LineWriter::open(folder.join(METRICS_FILE))?,
            index: Some(IndexWriter::create(&folder.join(INDEX_FILE))?),
            events: LineWriter::open(folder.join(EVENTS_FILE))?,
            media: LineWriter::open(folder.join(MEDIA_FILE))?,
            media_count: 0,
            folder,
            info,
            _lock: lock,
        })
    }

    /// The folder of the run.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the run is.
    #[must_use]
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// Seconds since the start of the run, to the microsecond.
    #[must_use]
    pub fn elapsed(&self) -> f64 {
        ((unix_seconds() - self.info.started) * 1e6).round() / 1e6
    }

    /// Adds settings to those of the run, flat.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) if they cannot be written.
    pub fn store_settings(&mut self, settings: &Values) -> Result<()> {
        for (name, value) in flatten(settings, ".").values {
            self.info.settings.insert(name, value);
        }
        self.info.write(&self.folder)
    }

    /// Writes values at a step; nested ones by names with slashes.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if they cannot be written, such as on a full disk; later ones may
    /// be again.
    pub fn log(&mut self, values: &Values, step: Option<i64>) -> Result<()> {
        let values = flatten(values, "/").values;
        let t = self.elapsed();
        let torn = self.metrics.is_torn();
        let line = MetricsLine {
            t,
            step,
            values: &values,
        };
        let written = self.metrics.write(&line);
        // Behind a torn line the index would not fit: readers do without the rest of it.
        if torn || written.is_err() {
            self.index = None;
        }
        let bytes = written?;
        if let Some(index) = &mut self.index
            && let Err(source) = index.line(t, step, &values, bytes)
        {
            tracing::warn!("the index of the run is not written any more: {source}");
            self.index = None;
        }
        Ok(())
    }

    /// Writes down that something happened.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if it cannot be written.
    pub fn event(&mut self, severity: Severity, rank: usize, message: &str) -> Result<()> {
        let event = Event {
            t: self.elapsed(),
            severity,
            rank,
            message: message.to_owned(),
        };
        self.events.write(&event).map(drop)
    }

    /// Keeps a picture.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if it cannot be written, [`Error::Png`](crate::Error::Png) if it
    /// has no pixels.
    pub fn image(&mut self, name: &str, image: &Image, step: Option<i64>) -> Result<()> {
        let png = image.to_png()?;
        let caption = image.caption().map(str::to_owned);
        self.medium(name, MediumKind::Image, &png, step, caption)
    }

    /// Keeps a table.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if it cannot be written.
    pub fn table(&mut self, name: &str, table: &Table, step: Option<i64>) -> Result<()> {
        let json = table.to_json().to_string();
        self.medium(name, MediumKind::Table, json.as_bytes(), step, None)
    }

    fn medium(
        &mut self,
        name: &str,
        kind: MediumKind,
        bytes: &[u8],
        step: Option<i64>,
        caption: Option<String>,
    ) -> Result<()> {
        let ending = match kind {
            MediumKind::Image => "png",
            _ => "json",
        };
        let file = media::write(&self.folder, name, self.media_count, ending, bytes)?;
        self.media_count += 1;
        let medium = Medium {
            t: self.elapsed(),
            step,
            name: name.to_owned(),
            kind,
            file,
            caption,
        };
        self.media.write(&medium).map(drop)
    }

    /// Ends the run and waits until all of it is on the disk.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) or [`Error::File`](crate::Error::File) if it cannot be written.
    pub fn finish(&mut self, outcome: Outcome, message: Option<&str>) -> Result<()> {
        self.metrics.sync()?;
        self.events.sync()?;
        self.media.sync()?;
        let ending = Ending {
            outcome,
            t: self.elapsed(),
            message: message.map(str::to_owned),
        };
        write_json(self.folder.join(FINISHED_FILE), &ending)
    }
}

/// Takes the lock that tells readers of a living process.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(LOCK_FILE);
    let file = File::create(&path).map_err(|source| io_error("make", &path, source))?;
    if let Err(source) = file.lock() {
        // Some network file systems have no locks: readers then do not know, and say so.
        tracing::debug!("`{}` cannot be locked: {source}", path.display());
    }
    Ok(file)
}

impl IndexWriter {
    fn create(path: &Path) -> Result<Self> {
        let failed = |source| io_error("write", path, source);
        let mut file = File::create(path).map_err(failed)?;
        file.write_all(&index::version_record()).map_err(failed)?;
        Ok(Self {
            file,
            summary: Summary::default(),
            written_names: 0,
        })
    }

    /// Counts a line that was written, and writes the block that it finishes.
    fn line(
        &mut self,
        seconds: f64,
        step: Option<i64>,
        values: &Values,
        bytes: u64,
    ) -> std::io::Result<()> {
        let step_or_line = step.unwrap_or_else(|| line_number(&self.summary));
        for (name, value) in values.iter() {
            if let Some(value) = value.as_number() {
                let point = Point {
                    step: step_or_line,
                    seconds,
                    value,
                };
                self.summary.value(name, point);
            }
        }
        if !self.summary.line(Some(step_or_line), bytes) {
            return Ok(());
        }
        let mut records = Vec::new();
        for name in self.summary.names().iter().skip(self.written_names) {
            records.extend(index::name_record(name));
        }
        if let Some(block) = self.summary.last_finished() {
            records.extend(index::block_record(block));
        }
        self.written_names = self.summary.names().len();
        self.summary.forget_finished();
        self.file.write_all(&records)
    }
}

/// The number of the line that comes next, as a step.
pub(super) fn line_number(summary: &Summary) -> i64 {
    i64::try_from(summary.lines()).unwrap_or(i64::MAX)
}
