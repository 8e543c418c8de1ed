//! The report of a job for programs: `--report FILE`, in JSON.
//!
//! Times are seconds since 1970 in UTC, with fractions. A value that is not known is `null`.

use std::{
    io,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use accelerate_formats::AtomicFile;
use accelerate_plan::launch::Program;
use serde::Serialize;
use serde_json::Value;

use super::{
    ended::{Ended, Outcome, RankEnd},
    signals,
    tree::Exit,
};
use crate::error::{Error, Result};

/// Rises when the meaning of a field changes or one is removed.
const SCHEMA: u32 = 1;

#[derive(Debug, Serialize)]
struct JobReport<'a> {
    schema: u32,
    program: ProgramReport<'a>,
    outcome: &'static str,
    /// The signal or the machine that ended the job, if one of them did.
    detail: Option<String>,
    exit_code: u8,
    attempts: Vec<AttemptReport<'a>>,
}

#[derive(Debug, Serialize)]
struct ProgramReport<'a> {
    name: &'a str,
    executable: String,
    arguments: Vec<String>,
}

#[derive(Debug, Serialize)]
struct AttemptReport<'a> {
    attempt: usize,
    started: f64,
    ended: f64,
    outcome: &'static str,
    world_size: usize,
    ranks: Vec<RankReport<'a>>,
}

#[derive(Debug, Serialize)]
struct RankReport<'a> {
    rank: usize,
    local_rank: usize,
    pid: Option<i32>,
    host: &'a str,
    ended: Option<f64>,
    exit: Option<ExitReport>,
    first_failure: bool,
    ended_by_launcher: bool,
    last_lines: &'a [String],
    error_file: Option<&'a Value>,
    /// What it was doing when the time was up.
    activity: Option<ActivityReport<'a>>,
}

#[derive(Debug, Serialize)]
struct ActivityReport<'a> {
    state: &'a str,
    last_output: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum ExitReport {
    Code(u8),
    Signal(String),
}

/// Makes sure that a report can be written before anything is started.
///
/// # Errors
/// [`Error::Report`] if it cannot.
pub(crate) fn check(path: &Path) -> Result<()> {
    AtomicFile::create(path).map(drop).map_err(refused(path))
}

/// Writes the report, whole or not at all.
///
/// # Errors
/// [`Error::Report`] if it cannot be written.
pub(crate) fn write(path: &Path, program: &Program, history: &[Ended]) -> Result<()> {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let report = JobReport::new(program, history, &host);
    let mut file = AtomicFile::create(path).map_err(refused(path))?;
    serde_json::to_writer_pretty(&mut file, &report)
        .map_err(io::Error::from)
        .and_then(|()| io::Write::write_all(&mut file, b"\n"))
        .map_err(|source| accelerate_formats::Error::Write {
            path: path.to_owned(),
            source,
        })
        .and_then(|()| file.commit())
        .map_err(refused(path))
}

fn refused(path: &Path) -> impl Fn(accelerate_formats::Error) -> Error + '_ {
    |source| Error::Report {
        path: path.to_owned(),
        source: Box::new(source),
    }
}

impl<'a> JobReport<'a> {
    fn new(program: &'a Program, history: &'a [Ended], host: &'a str) -> Self {
        let last = history.last();
        Self {
            schema: SCHEMA,
            program: ProgramReport {
                name: &program.name,
                executable: program.executable.display().to_string(),
                arguments: program
                    .arguments
                    .iter()
                    .map(|argument| argument.to_string_lossy().into_owned())
                    .collect(),
            },
            outcome: last.map_or("success", |last| name(&last.outcome)),
            detail: last.and_then(|last| detail(&last.outcome)),
            exit_code: last.map_or(0, Ended::exit_code),
            attempts: history
                .iter()
                .map(|ended| AttemptReport::new(ended, host))
                .collect(),
        }
    }
}

impl<'a> AttemptReport<'a> {
    fn new(ended: &'a Ended, host: &'a str) -> Self {
        let first = match ended.outcome {
            Outcome::Failed { index, .. } => Some(index),
            _ => None,
        };
        let ranks = ended.ranks.iter().enumerate();
        Self {
            attempt: ended.attempt,
            started: seconds(ended.started),
            ended: seconds(ended.ended),
            outcome: name(&ended.outcome),
            world_size: ended.world_size,
            ranks: ranks
                .map(|(index, rank)| RankReport::new(rank, host, Some(index) == first))
                .collect(),
        }
    }
}

impl<'a> RankReport<'a> {
    fn new(rank: &'a RankEnd, host: &'a str, first_failure: bool) -> Self {
        Self {
            rank: rank.rank,
            local_rank: rank.local_rank,
            pid: rank.pid,
            host,
            ended: rank.end.map(|end| seconds(end.at)),
            exit: rank.end.map(|end| match end.exit {
                Exit::Code(code) => ExitReport::Code(code),
                Exit::Signal(signal) => ExitReport::Signal(signals::name(signal)),
            }),
            first_failure,
            ended_by_launcher: rank.end.is_some_and(|end| end.by_launcher),
            last_lines: &rank.last_lines,
            error_file: rank.reported.as_ref().map(|reported| &reported.content),
            activity: rank.activity.as_ref().map(|activity| ActivityReport {
                state: &activity.state,
                last_output: activity.last_output.as_deref(),
            }),
        }
    }
}

fn name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Success => "success",
        Outcome::Left => "left_early",
        Outcome::Failed { .. } => "failed",
        Outcome::PeerFailed { .. } => "peer_failed",
        Outcome::Interrupted { .. } => "interrupted",
        Outcome::TimedOut { .. } => "timed_out",
    }
}

fn detail(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Success | Outcome::Left | Outcome::Failed { .. } => None,
        Outcome::PeerFailed { description } => Some(description.clone()),
        Outcome::Interrupted { signal } => Some(signals::name(*signal)),
        Outcome::TimedOut { limit } => Some(format!("{} s", limit.as_secs_f64())),
    }
}

fn seconds(time: SystemTime) -> f64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    // Finer than this, clocks of machines differ anyway.
    (since.as_secs_f64() * 1000.0).round() / 1000.0
}
