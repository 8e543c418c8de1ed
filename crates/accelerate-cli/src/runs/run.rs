//! One run, read as far as it has grown.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use accelerate_tracking::run::{Curve, Event, Outcome, RunInfo, RunReader, RunStatus};

use super::{fingerprint::Fingerprint, ranks::Ranks, with_causes};

/// Names under which a run may say how many steps it will have.
const TOTALS: [&str; 5] = [
    "max_train_steps",
    "max_steps",
    "num_training_steps",
    "total_steps",
    "train_steps",
];

/// A run that is followed.
#[derive(Debug)]
pub(crate) struct Run {
    id: String,
    folder: PathBuf,
    content: Mutex<Content>,
    /// Apart from the rest: they are read only where somebody wants to see them.
    ranks: Mutex<Ranks>,
}

#[derive(Debug, Default)]
struct Content {
    fingerprint: Fingerprint,
    standing: Standing,
    reader: Option<RunReader>,
    /// What is wrong with the folder, or has to be known about it.
    problem: Option<String>,
}

/// Where a run stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    Running,
    Finished,
    /// With what the run said of it, if it did.
    Failed(Option<String>),
    /// Nobody holds it any more, and it did not say that it ended.
    Crashed,
    /// Nothing says whether it goes on.
    #[default]
    Unknown,
    /// The folder cannot be read.
    Unreadable,
}

impl Standing {
    fn of(status: RunStatus) -> Self {
        match status {
            RunStatus::Running => Self::Running,
            RunStatus::Lost => Self::Crashed,
            RunStatus::Ended(ending) => match ending.outcome {
                Outcome::Finished => Self::Finished,
                Outcome::Failed => Self::Failed(ending.message),
                Outcome::Other => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }

    /// One word for programs.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Failed(_) => "failed",
            Self::Crashed => "crashed",
            Self::Unknown => "unknown",
            Self::Unreadable => "unreadable",
        }
    }
}

impl Run {
    /// The run in `folder`, of which nothing is read yet.
    pub(crate) fn new(id: String, folder: PathBuf) -> Self {
        Self {
            id,
            ranks: Mutex::new(Ranks::new(&folder)),
            folder,
            content: Mutex::default(),
        }
    }

    /// Its name among those of its root.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Where it is.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads what has come since.
    pub(crate) fn refresh(&self) {
        let mut content = self.content();
        let fingerprint = Fingerprint::of(&self.folder);
        if fingerprint != content.fingerprint || content.reader.is_none() {
            content.fingerprint = fingerprint;
            content.read(&self.folder);
        }
        content.look(&self.folder);
    }

    /// A number that is another one when something has changed.
    pub(crate) fn version(&self) -> u64 {
        let content = self.content();
        let mut hasher = DefaultHasher::new();
        (content.fingerprint.sum, &content.standing, &content.problem).hash(&mut hasher);
        hasher.finish()
    }

    /// Where it stands.
    pub(crate) fn standing(&self) -> Standing {
        self.content().standing.clone()
    }

    /// What is wrong with the folder, or has to be known about it.
    pub(crate) fn problem(&self) -> Option<String> {
        self.content().problem.clone()
    }

    /// When something was written last, in seconds since 1970.
    pub(crate) fn written(&self) -> Option<f64> {
        let written = self.content().fingerprint.written?;
        Some(written.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
    }

    /// What the run is, where it can be read.
    pub(crate) fn info(&self) -> Option<RunInfo> {
        self.read(|reader| reader.info().clone())
    }

    /// The names of its metrics.
    pub(crate) fn metrics(&self) -> Vec<String> {
        let names = self.read(|reader| reader.names().map(str::to_owned).collect());
        names.unwrap_or_default()
    }

    /// The last value of a metric.
    pub(crate) fn latest(&self, metric: &str) -> Option<f64> {
        self.read(|reader| reader.latest(metric))
            .flatten()
            .map(|point| point.value)
    }

    /// The last step at which something was logged.
    pub(crate) fn step(&self) -> Option<i64> {
        let last = |reader: &RunReader| {
            let steps = reader.names().filter_map(|name| reader.latest(name));
            steps.map(|point| point.step).max()
        };
        self.read(last).flatten()
    }

    /// How many steps there will be, where a setting says so.
    pub(crate) fn total_steps(&self) -> Option<i64> {
        self.read(|reader| {
            let settings = &reader.info().settings;
            let named = |name: &str| {
                let found = settings.iter().find(|(key, _)| {
                    // A setting may lie within others.
                    key.rsplit('.').next() == Some(name)
                });
                whole(found?.1.as_number()?)
            };
            TOTALS.iter().find_map(|name| named(name))
        })
        .flatten()
    }

    /// How long it has run, in seconds: up to its end, or to now.
    pub(crate) fn elapsed(&self) -> Option<f64> {
        let started = self.read(|reader| reader.info().started)?;
        let until = match self.standing() {
            Standing::Running => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                now.ok().map(|now| now.as_secs_f64())
            }
            _ => self.written(),
        };
        (started > 0.0).then_some((until? - started).max(0.0))
    }

    /// A metric between two steps, in about so many points.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn curve(
        &self,
        metric: &str,
        steps: RangeInclusive<i64>,
        points: usize,
    ) -> Result<Curve, accelerate_tracking::Error> {
        match &self.content().reader {
            Some(reader) => reader.curve(metric, steps, points),
            None => Ok(Curve::default()),
        }
    }

    /// Warnings and errors, the newest last; none where they cannot be read.
    pub(crate) fn events(&self) -> Vec<Event> {
        let events = self.read(|reader| reader.events().unwrap_or_default());
        events.unwrap_or_default()
    }

    /// The end of what the program printed, if somebody kept it.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn log_tail(&self, bytes: u64) -> Result<String, accelerate_tracking::Error> {
        match &self.content().reader {
            Some(reader) => reader.log_tail(bytes),
            None => Ok(String::new()),
        }
    }

    /// What the ranks measured, read as far as it has grown.
    pub(crate) fn ranks(&self) -> MutexGuard<'_, Ranks> {
        let mut ranks = self.ranks.lock().unwrap_or_else(PoisonError::into_inner);
        ranks.refresh();
        ranks
    }

    fn read<T>(&self, take: impl FnOnce(&RunReader) -> T) -> Option<T> {
        self.content().reader.as_ref().map(take)
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    fn read(&mut self, folder: &Path) {
        let read = match &mut self.reader {
            Some(reader) => reader.poll().map(drop),
            None => RunReader::open(folder).map(|reader| self.reader = Some(reader)),
        };
        let notices = self.reader.as_ref().map(RunReader::notices);
        let notices = notices.unwrap_or_default().join("; ");
        self.problem = match read {
            Err(error) => Some(with_causes(&error)),
            Ok(()) => (!notices.is_empty()).then_some(notices),
        };
    }

    /// Finds out where the run stands: that can change without a word being written.
    fn look(&mut self, folder: &Path) {
        self.standing = match (&self.reader, RunStatus::of(folder)) {
            (None, _) => Standing::Unreadable,
            (Some(_), Ok(status)) => Standing::of(status),
            (Some(_), Err(_)) => Standing::Unknown,
        };
    }
}

/// A number of steps that a setting gives.
fn whole(number: f64) -> Option<i64> {
    // Up to here every whole number is an `f64`.
    const LARGEST: f64 = 9_007_199_254_740_992.0;
    (number >= 1.0 && number <= LARGEST && number.fract() == 0.0).then_some(number as i64)
}
