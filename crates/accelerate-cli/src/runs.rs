//! The runs below a folder, as the views look at them: found again and again, read as far as they
//! have grown, and never changed.

mod fingerprint;
mod ranks;
mod run;

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use accelerate_tracking::run::find_runs;

pub(crate) use ranks::RankSummary;
pub(crate) use run::{Run, Standing};

/// What was seen so recently is not looked at again, however many ask.
const FRESH: Duration = Duration::from_millis(300);

/// New runs are looked for so seldom that looking takes no more than one part in this many of the time.
pub(crate) const SEARCH_SHARE: u32 = 20;

/// Where runs are unless somebody says where: in the folder in which the tracker `local` puts them, or
/// somewhere below this one.
pub(crate) fn usual_root() -> PathBuf {
    let usual = Path::new("runs");
    let root = if usual.is_dir() {
        usual
    } else {
        Path::new(".")
    };
    root.to_owned()
}

/// All runs below a folder.
#[derive(Debug)]
pub(crate) struct Runs {
    root: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    at: Option<Instant>,
    /// When new runs are looked for again.
    next_search: Option<Instant>,
    /// The newest first.
    runs: Vec<Arc<Run>>,
    problem: Option<String>,
}

impl Runs {
    /// Those below `root`, which may itself be a run. Nothing is read yet.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self {
            root,
            seen: Mutex::default(),
        }
    }

    /// The folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// All runs, the newest first, each read as far as it has grown.
    pub(crate) fn all(&self) -> Vec<Arc<Run>> {
        self.look(|seen| seen.runs.clone())
    }

    /// The run of this name.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<Run>> {
        self.look(|seen| seen.runs.iter().find(|run| run.id() == id).cloned())
    }

    /// Why the folder cannot be looked into, if it cannot.
    pub(crate) fn problem(&self) -> Option<String> {
        self.look(|seen| seen.problem.clone())
    }

    /// A number that is another one when something has changed.
    pub(crate) fn version(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for run in self.all() {
            (run.id(), run.version()).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn look<T>(&self, take: impl FnOnce(&Seen) -> T) -> T {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.at.is_none_or(|at| at.elapsed() >= FRESH) {
            self.refresh(&mut seen);
            seen.at = Some(Instant::now());
        }
        take(&seen)
    }

    fn refresh(&self, seen: &mut Seen) {
        let begin = Instant::now();
        if seen.next_search.is_none_or(|next| begin >= next) {
            self.search(seen);
            let end = Instant::now();
            seen.next_search = end.checked_add(SEARCH_SHARE * (end - begin));
        }
        refresh_all(&seen.runs);
    }

    fn search(&self, seen: &mut Seen) {
        match find_runs(&self.root) {
            Ok(folders) => {
                let mut known: HashMap<PathBuf, Arc<Run>> = seen
                    .runs
                    .drain(..)
                    .map(|run| (run.folder().to_owned(), run))
                    .collect();
                seen.runs = folders
                    .into_iter()
                    .map(|folder| {
                        let run = known.remove(&folder);
                        run.unwrap_or_else(|| Arc::new(Run::new(self.id(&folder), folder)))
                    })
                    .collect();
                seen.problem = None;
            }
            Err(error) => seen.problem = Some(with_causes(&error)),
        }
    }

    /// The path from the root, or the name of the root where that is the run.
    fn id(&self, folder: &Path) -> String {
        let below = folder.strip_prefix(&self.root).unwrap_or(folder);
        let name = match below.as_os_str().is_empty() {
            true => folder.file_name().unwrap_or(folder.as_os_str()),
            false => below.as_os_str(),
        };
        name.to_string_lossy().into_owned()
    }
}

/// Reads all runs as far as they have grown, on all processors.
fn refresh_all(runs: &[Arc<Run>]) {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let share = runs.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        for runs in runs.chunks(share) {
            scope.spawn(move || runs.iter().for_each(|run| run.refresh()));
        }
    });
}

/// An error and its causes in one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text += &format!(": {source}");
        cause = source.source();
    }
    text
}
