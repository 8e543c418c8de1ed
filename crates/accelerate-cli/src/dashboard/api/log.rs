//! What a run said: warnings and errors, and the end of its output.

use accelerate_tracking::{
    Error,
    run::{Event, Severity},
};
use serde::Serialize;

use crate::runs::{Run, Standing};

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
        let mut lines: Vec<String> = run.events().iter().map(event_line).collect();
        let mut output: Vec<String> = output.lines().map(plain).collect();
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

fn event_line(event: &Event) -> String {
    let kind = match event.severity {
        Severity::Notice => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    let Event { t, rank, message, .. } = event;
    format!("{t:9.1} s  rank {rank}  {kind}: {message}")
}

/// A line as a terminal would show it at the end: without colours, and the last frame of a progress
/// bar.
fn plain(line: &str) -> String {
    let line = line.trim_end_matches('\r');
    let line = line.rsplit('\r').next().unwrap_or(line);
    let mut shown = String::with_capacity(line.len());
    let mut signs = line.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '\x1b' => skip_sequence(&mut signs),
            '\t' => shown.push(sign),
            sign if sign.is_control() => {}
            sign => shown.push(sign),
        }
    }
    shown
}

/// Passes over what an escape sign begins: `[` up to a letter, or one sign.
fn skip_sequence(signs: &mut std::str::Chars<'_>) {
    if signs.next() == Some('[') {
        signs.find(|sign| ('@'..='~').contains(sign));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_a_terminal_shows_them() {
        assert_eq!(plain("plain\tline"), "plain\tline");
        assert_eq!(plain("\x1b[1;31mred\x1b[0m\x07"), "red");
        assert_eq!(plain(" 10%\r 50%\r100%\r"), "100%");
        assert_eq!(plain("\x1b[3"), "");
    }
}
