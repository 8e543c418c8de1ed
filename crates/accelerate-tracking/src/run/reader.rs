//! Reading a run, also while it goes on.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use accelerate_formats::AtomicFile;

use super::curve::{self, Curve};
use super::ending::RunStatus;
use super::events::Event;
use super::info::{FORMAT_VERSION, RunInfo};
use super::line::{NumbersLine, WholeLine};
use super::lines::{LineFile, read_all};
use super::media::Medium;
use super::ranks::RankReader;
use super::summary::{Point, SeriesSummary, Summary};
use super::writer::line_number;
use super::{EVENTS_FILE, INDEX_FILE, LOG_FILE, MEDIA_FILE, METRICS_FILE, index};
use crate::error::{Result, io_error};
use crate::value::{Value, Values};

/// What has come to a run since it was read last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// How many lines of metrics.
    pub lines: u64,
    /// Whether what the run is, such as its settings, has changed.
    pub info_changed: bool,
}

/// Reads the folder of a run. It changes nothing in it, but for an index that is missing.
#[derive(Debug)]
pub struct RunReader {
    folder: PathBuf,
    info: RunInfo,
    summary: Summary,
    lines: LineFile,
    unreadable_lines: u64,
}

impl RunReader {
    /// Opens the run in `folder`, by its index as far as there is one.
    ///
    /// # Errors
    /// [`Error::NoRun`](crate::Error::NoRun) if there is none,
    /// [`Error::Damaged`](crate::Error::Damaged) if it does not say what it is,
    /// [`Error::Io`](crate::Error::Io) if it cannot be read.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        let info = RunInfo::read(&folder)?;
        let metrics = folder.join(METRICS_FILE);
        let bytes = fs::metadata(&metrics).map_or(0, |metadata| metadata.len());
        let summary = index::read(&folder.join(INDEX_FILE), bytes);
        let indexed = summary.is_some();
        let summary = summary.unwrap_or_default();
        let mut reader = Self {
            lines: LineFile::from_offset(metrics, summary.end()),
            folder,
            info,
            summary,
            unreadable_lines: 0,
        };
        reader.read_lines()?;
        if !indexed {
            reader.keep_index();
        }
        Ok(reader)
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

    /// What a person should know before trusting what is shown.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        if self.info.is_newer() {
            notices.push(format!(
                "written by a newer version (format {}, known is {FORMAT_VERSION}): some of it may be missing here",
                self.info.format_version
            ));
        }
        if self.unreadable_lines > 0 {
            notices.push(format!(
                "{} lines of `{METRICS_FILE}` cannot be read and are left out",
                self.unreadable_lines
            ));
        }
        notices
    }

    /// The names of all series of numbers, in the order of their first values.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.summary.names().iter().map(String::as_str)
    }

    /// The number of lines of metrics so far.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.summary.lines()
    }

    /// What is known of a series over the whole run.
    #[must_use]
    pub fn series(&self, name: &str) -> Option<SeriesSummary> {
        let number = self.summary.number(name)?;
        let mut pieces = self
            .summary
            .blocks()
            .filter_map(|block| block.series(number));
        let mut whole = *pieces.next()?;
        for piece in pieces {
            whole.merge(piece);
        }
        Some(whole)
    }

    /// The last value of a series.
    #[must_use]
    pub fn latest(&self, name: &str) -> Option<Point> {
        let number = self.summary.number(name)?;
        let blocks = self.summary.blocks().rev();
        let mut pieces = blocks.filter_map(|block| block.series(number));
        pieces.next().map(|series| series.last)
    }

    /// A series between two steps, in no more points than `max_points` or very few more.
    ///
    /// Where there are more values than points, the least and the greatest of each stretch stay, so that
    /// no peak is lost; [`Curve::is_thinned`] says so. Of a long run the summaries are used; a
    /// short piece is read from the file.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the file cannot be read.
    pub fn curve(
        &self,
        name: &str,
        steps: std::ops::RangeInclusive<i64>,
        max_points: usize,
    ) -> Result<Curve> {
        curve::of(
            &self.summary,
            &self.folder.join(METRICS_FILE),
            name,
            &steps,
            max_points,
        )
    }

    /// What was logged that is no number, such as texts: the last of each name in the last lines.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the file cannot be read.
    pub fn latest_texts(&self) -> Result<Values> {
        let from = self
            .summary
            .blocks()
            .next_back()
            .map_or(0, |block| block.offset);
        let mut texts = Values::new();
        LineFile::from_offset(self.folder.join(METRICS_FILE), from).poll(|line, _| {
            let line = serde_json::from_slice::<WholeLine>(line).map(|line| line.values);
            for (name, value) in line.unwrap_or_default() {
                if matches!(value, Value::Text(_) | Value::List(_)) {
                    texts.insert(name, value);
                }
            }
        })?;
        Ok(texts)
    }

    /// Reads what has come since.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn poll(&mut self) -> Result<Progress> {
        let metrics = self.folder.join(METRICS_FILE);
        let bytes = fs::metadata(&metrics).map_or(0, |metadata| metadata.len());
        if bytes < self.lines.offset() {
            // Somebody put another file there.
            *self = Self::open(self.folder.clone())?;
            return Ok(Progress {
                lines: self.lines(),
                info_changed: true,
            });
        }
        let info = RunInfo::read(&self.folder)?;
        let info_changed = info != self.info;
        self.info = info;
        let before = self.lines();
        self.read_lines()?;
        Ok(Progress {
            lines: self.lines() - before,
            info_changed,
        })
    }

    /// Whether the run goes on.
    ///
    /// # Errors
    /// As [`RunStatus::of`].
    pub fn status(&self) -> Result<RunStatus> {
        RunStatus::of(&self.folder)
    }

    /// What each rank measured, to be followed.
    ///
    /// # Errors
    /// As [`RankReader::all`].
    pub fn ranks(&self) -> Result<Vec<RankReader>> {
        RankReader::all(&self.folder)
    }

    /// All warnings and errors.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the file is there and cannot be read.
    pub fn events(&self) -> Result<Vec<Event>> {
        read_all(&self.folder.join(EVENTS_FILE))
    }

    /// All pictures and tables.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the file is there and cannot be read.
    pub fn media(&self) -> Result<Vec<Medium>> {
        read_all(&self.folder.join(MEDIA_FILE))
    }

    /// The end of what the program printed, at most so many bytes; empty if nobody kept it.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the file is there and cannot be read.
    pub fn log_tail(&self, max_bytes: u64) -> Result<String> {
        let path = self.folder.join(LOG_FILE);
        let failed = |source| io_error("read", &path, source);
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
            file => file.map_err(failed)?,
        };
        let bytes = file.metadata().map_err(failed)?.len();
        file.seek(SeekFrom::Start(bytes.saturating_sub(max_bytes)))
            .map_err(failed)?;
        let mut text = Vec::new();
        file.take(max_bytes)
            .read_to_end(&mut text)
            .map_err(failed)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn read_lines(&mut self) -> Result<()> {
        let (summary, unreadable) = (&mut self.summary, &mut self.unreadable_lines);
        self.lines.poll(|line, bytes| {
            let read = serde_json::from_slice::<NumbersLine<'_>>(line);
            let Ok(read) = read else {
                *unreadable += u64::from(!line.is_empty());
                summary.line(None, bytes);
                return;
            };
            let step = read.step.unwrap_or_else(|| line_number(summary));
            for (name, value) in &read.values.0 {
                let point = Point {
                    step,
                    seconds: read.t,
                    value: *value,
                };
                summary.value(name, point);
            }
            summary.line(Some(step), bytes);
        })
    }

    /// Writes the index of a run that has lost it and ended: the next one to open it is faster.
    fn keep_index(&self) {
        let ended = !matches!(self.status(), Ok(RunStatus::Running));
        if !ended || self.summary.last_finished().is_none() {
            return;
        }
        let path = self.folder.join(INDEX_FILE);
        let mut records = index::version_record();
        for name in self.summary.names() {
            records.extend(index::name_record(name));
        }
        for block in self.summary.finished() {
            records.extend(index::block_record(block));
        }
        let kept = AtomicFile::create(&path).and_then(|mut file| {
            file.write_all(&records)
                .map_err(|source| accelerate_formats::Error::Write {
                    path: path.clone(),
                    source,
                })?;
            file.commit_unflushed()
        });
        if let Err(error) = kept {
            tracing::debug!("the index of a run is not kept: {error}");
        }
    }
}
