//! Runs as folders: written by the tracker `local`, readable by anything.
//!
//! | file | content |
//! | --- | --- |
//! | `run.json` | what the run is: [`RunInfo`], with its settings |
//! | `metrics.jsonl` | one line for each call of `log`: `{"t":12.5,"step":3,"values":{"loss":0.5}}` |
//! | `metrics.idx` | minima and maxima of each [`LINES_PER_BLOCK`] lines; may be deleted |
//! | `ranks/RANK.jsonl` | one line for each step that a rank measured: [`StepMetrics`] |
//! | `events.jsonl` | warnings and errors: [`Event`] |
//! | `log.txt` | what the program printed, where somebody puts it there |
//! | `media.jsonl`, `media/` | pictures and tables, with what they are: [`Medium`] |
//! | `finished.json` | how the run ended: [`Ending`]; absent while it runs and if it was killed |
//! | `.lock` | held by the writing process, so that readers know whether it lives |
//!
//! `t` is in seconds since the start of the run. A line without `step` has its own number, from 0, as
//! step. Numbers that are not finite are the texts `NaN`, `Infinity` and `-Infinity`. Each line is
//! written by one call to the system before `log` returns: what kills the process loses no line.
//! Readers pass over lines and keys that they do not know, and over half a line at the end.

mod curve;
mod ending;
mod events;
mod find;
mod index;
mod info;
mod line;
pub(crate) mod lines;
mod media;
mod ranks;
mod reader;
mod stragglers;
mod summary;
mod writer;

pub use curve::Curve;
pub use ending::{Ending, Outcome, RunStatus};
pub use events::{Event, Severity};
pub use find::find_runs;
pub use info::{FORMAT_VERSION, RunInfo};
pub use lines::LineFile;
pub use media::{Medium, MediumKind};
pub use ranks::{RankReader, RankWriter, StepMetrics, TimeSplit};
pub use reader::{Progress, RunReader};
pub use stragglers::{middle, stragglers};
pub use summary::{LINES_PER_BLOCK, Point, SeriesSummary};
pub use writer::RunWriter;

/// What the run is.
const RUN_FILE: &str = "run.json";
/// What was logged.
const METRICS_FILE: &str = "metrics.jsonl";
/// Summaries of what was logged.
const INDEX_FILE: &str = "metrics.idx";
/// What each rank measured.
const RANKS_FOLDER: &str = "ranks";
/// Warnings and errors.
const EVENTS_FILE: &str = "events.jsonl";
/// What the program printed.
const LOG_FILE: &str = "log.txt";
/// What lies in the folder of media.
const MEDIA_FILE: &str = "media.jsonl";
/// Pictures and tables.
const MEDIA_FOLDER: &str = "media";
/// How it ended.
const FINISHED_FILE: &str = "finished.json";
/// Held by the writer.
const LOCK_FILE: &str = ".lock";

#[cfg(test)]
mod tests;
