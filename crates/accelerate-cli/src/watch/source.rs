//! The run that is watched: which one, and what is known of it now.

use std::{
    collections::HashSet,
    ffi::OsStr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use accelerate_tracking::run::{RunInfo, Severity, find_runs};

use super::{
    error::{Result, WatchError},
    snapshot::{CurveView, RankView, Snapshot, Split, State},
};
use crate::runs::{self, RankSummary, Run, Standing};

/// As many points of a curve as a wide terminal has dots.
const POINTS: usize = 400;

/// So many warnings and errors are kept for the screen.
const NOTICES: usize = 50;

/// The run that is watched, or the one that is awaited.
#[derive(Debug)]
pub(crate) struct Source {
    run: Option<Run>,
    awaited: Option<Awaited>,
}

/// The next run below a folder.
#[derive(Debug)]
struct Awaited {
    root: PathBuf,
    /// Seconds since 1970: older runs are others.
    since: f64,
    /// Those that were looked at and are not meant, or were shown.
    others: HashSet<PathBuf>,
    /// When it is looked for again.
    next: Option<Instant>,
}

/// Which curves are wanted: so many, from this one on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl Source {
    /// The run that `named` says: a folder of a run, a folder with runs (the newest), or the name of
    /// a run below the usual folder. Without it, the newest there.
    ///
    /// # Errors
    /// If there is none, or the name fits several.
    pub(crate) fn find(named: Option<&Path>) -> Result<Self> {
        let folder = match named {
            Some(path) if path.is_dir() => newest(path)?,
            Some(path) => by_name(path.as_os_str(), &runs::usual_root())?,
            None => newest(&runs::usual_root())?,
        };
        // A folder that cannot be read is worth an error now rather than an empty view.
        RunInfo::read(&folder)?;
        Ok(Self {
            run: Some(opened(folder)),
            awaited: None,
        })
    }

    /// The first run below `root` that begins at this moment (seconds since 1970) or later.
    pub(crate) fn awaiting(root: PathBuf, since: f64) -> Self {
        let awaited = Awaited {
            root,
            since,
            others: HashSet::new(),
            next: None,
        };
        Self {
            run: None,
            awaited: Some(awaited),
        }
    }

    /// What is known now, with the curves of `page`.
    pub(crate) fn snapshot(&mut self, page: Page) -> Snapshot {
        if let Some(awaited) = &mut self.awaited
            && let Some(folder) = awaited.look()
        {
            // A job that is started again begins another run: the newest is shown.
            self.run = Some(opened(folder));
        }
        match &self.run {
            Some(run) => {
                run.refresh();
                of_run(run, page)
            }
            None => Snapshot::default(),
        }
    }
}

fn opened(folder: PathBuf) -> Run {
    let name = folder.file_name().unwrap_or(folder.as_os_str());
    Run::new(name.to_string_lossy().into_owned(), folder)
}

fn newest(root: &Path) -> Result<PathBuf> {
    let mut found = find_runs(root)?.into_iter();
    found.next().ok_or_else(|| WatchError::NoRun {
        folder: root.to_owned(),
    })
}

fn by_name(name: &OsStr, root: &Path) -> Result<PathBuf> {
    let text = name.to_string_lossy().into_owned();
    let mut fitting: Vec<PathBuf> = find_runs(root)?
        .into_iter()
        .filter(|folder| {
            let folder = folder.file_name().unwrap_or_default().to_string_lossy();
            folder.starts_with(&text)
        })
        .collect();
    if let Some(whole) = fitting
        .iter()
        .position(|folder| folder.file_name() == Some(name))
    {
        return Ok(fitting.swap_remove(whole));
    }
    match (fitting.pop(), fitting.len()) {
        (Some(only), 0) => Ok(only),
        (Some(_), others) => Err(WatchError::ManyRuns {
            name: text,
            folder: root.to_owned(),
            count: others + 1,
        }),
        (None, _) => Err(WatchError::NoSuchRun {
            name: text,
            folder: root.to_owned(),
        }),
    }
}

impl Awaited {
    /// A run that has not been looked at and is meant.
    fn look(&mut self) -> Option<PathBuf> {
        let begin = Instant::now();
        if self.next.is_some_and(|next| begin < next) {
            return None;
        }
        let found = find_runs(&self.root).unwrap_or_default();
        let mut new = found
            .into_iter()
            .filter(|folder| !self.others.contains(folder));
        // The newest first: only the first one that is meant counts.
        let mut looked = Vec::new();
        let meant = new.find(|folder| {
            looked.push(folder.clone());
            RunInfo::read(folder).is_ok_and(|info| info.started >= self.since)
        });
        looked.extend(new);
        self.others.extend(looked);
        let took = begin.elapsed();
        self.next = Instant::now().checked_add(runs::SEARCH_SHARE * took);
        meant
    }
}

fn of_run(run: &Run, page: Page) -> Snapshot {
    let info = run.info().unwrap_or_default();
    let metrics = run.metrics();
    let shown = metrics.iter().skip(page.first).take(page.count);
    let events = run.events();
    let older = events.len().saturating_sub(NOTICES);
    let ranks = run.ranks();
    let problems = [run.problem(), ranks.problem().map(str::to_owned)];
    let problems: Vec<_> = problems.into_iter().flatten().collect();
    Snapshot {
        name: match info.project.is_empty() {
            true => run.id().to_owned(),
            false => format!("{} / {}", info.project, run.id()),
        },
        state: state(run.standing()),
        elapsed: run
            .elapsed()
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        step: run.step(),
        total_steps: run.total_steps(),
        curves: shown.map(|metric| curve(run, metric)).collect(),
        latest: metrics
            .iter()
            .filter_map(|metric| Some((metric.clone(), run.latest(metric)?)))
            .collect(),
        ranks: ranks.summaries().into_iter().map(rank).collect(),
        notices: events
            .iter()
            .skip(older)
            .filter(|event| event.severity != Severity::Notice)
            .map(|event| format!("rank {}: {}", event.rank, event.message))
            .collect(),
        problem: (!problems.is_empty()).then(|| problems.join("; ")),
    }
}

fn state(standing: Standing) -> State {
    match standing {
        Standing::Running => State::Running,
        Standing::Finished => State::Finished,
        Standing::Failed(why) => State::Failed(why.unwrap_or_default()),
        Standing::Crashed => State::Crashed,
        Standing::Unknown | Standing::Unreadable => State::Unknown,
    }
}

fn curve(run: &Run, metric: &str) -> CurveView {
    let curve = run.curve(metric, i64::MIN..=i64::MAX, POINTS);
    let mut points: Vec<(f64, f64)> = curve
        .unwrap_or_default()
        .points
        .iter()
        .filter(|point| point.value.is_finite())
        .map(|point| (point.step as f64, point.value))
        .collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    CurveView {
        name: metric.to_owned(),
        points,
        last: run.latest(metric),
    }
}

fn rank(summary: RankSummary) -> RankView {
    let RankSummary {
        rank,
        newest,
        split,
        is_straggler,
        ..
    } = summary;
    RankView {
        rank,
        step: newest.step,
        split: Split(split),
        samples_per_second: newest.samples_per_second,
        tokens_per_second: newest.tokens_per_second,
        memory: newest.memory_bytes,
        gradient_norm: newest.gradient_norm,
        loss_scale: newest.loss_scale,
        is_straggler,
        warning: newest.warning,
    }
}
