//! What a run said: warnings and errors, and the end of its output.

use accelerate_tracking::{
    Error,
    run::{Event, Severity},
};
use serde::Serialize;

use crate::{
    plain_text,
    runs::{Run, Standing},
};

/// So much of the output is shown.
const BYTES: u64 = 256 * 1024;

/// The log of a run.
#[derive(Debug, Serialize)]
pub(super) struct Log {
    /// Why the run failed, if it did.
    failure: Option<String>,
    lines: Vec<String>,
    /// Whether the output is longer than what is shown.
    cut: bool,
}

impl Log {
    /// That of `run`.
    ///
    /// # Errors
    /// If the output is there and cannot be read.
    pub(super) fn of(run: &Run) -> Result<Self, Error> {
        let output = run.log_tail(BYTES)?;
        let cut = output.len() as u64 >= BYTES;
        let mut lines: Vec<String> = run.events().iter().flat_map(event_lines).collect();
        let mut output: Vec<String> = output.lines().map(plain_text::line).collect();
        if cut && !output.is_empty() {
            // It begins in the middle of a line.
            output.remove(0);
        }
        if !lines.is_empty() && !output.is_empty() {
            lines.push(String::new());
        }
        lines.extend(output);
        Ok(Self {
            failure: failure(&run.standing()),
            lines,
            cut,
        })
    }
}

fn failure(standing: &Standing) -> Option<String> {
    Some(match standing {
        Standing::Failed(Some(why)) => format!("Failed: {why}"),
        Standing::Failed(None) => "Failed".to_owned(),
        Standing::Crashed => {
            "Ended without a word: it was killed, or its machine went away".to_owned()
        }
        _ => return None,
    })
}

/// The lines of an event: the first one says when and where.
fn event_lines(event: &Event) -> Vec<String> {
    let kind = match event.severity {
        Severity::Notice => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    let head = format!("{:9.1} s  rank {}  {kind}: ", event.t, event.rank);
    let mut lines = event.message.lines().map(plain_text::line);
    let first = head + &lines.next().unwrap_or_default();
    let rest = lines.map(|line| format!("    {line}"));
    std::iter::once(first).chain(rest).collect()
}
