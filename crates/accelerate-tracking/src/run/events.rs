//! Warnings and errors of a run.

use serde::{Deserialize, Serialize};

/// How bad an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "String")]
pub enum Severity {
    /// Worth knowing, or a word of a newer version.
    #[default]
    Notice,
    /// Something may be wrong.
    Warning,
    /// Something failed.
    Error,
}

impl From<String> for Severity {
    fn from(word: String) -> Self {
        match word.as_str() {
            "error" => Self::Error,
            "warning" => Self::Warning,
            _ => Self::Notice,
        }
    }
}

/// A line of `events.jsonl`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// When, in seconds since the start of the run.
    pub t: f64,
    /// How bad it is.
    pub severity: Severity,
    /// On which rank it happened.
    pub rank: usize,
    /// What happened.
    pub message: String,
}
