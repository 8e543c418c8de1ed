//! What a rank that fails leaves to read.

use std::collections::VecDeque;
use std::error::Error as StdError;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// How many of its last lines are kept.
const LINES: usize = 40;

/// Writes an error with what caused it.
pub(super) fn write(error: &(dyn StdError + 'static)) {
    let mut text = format!("error: {error}");
    let mut next = error.source();
    while let Some(cause) = next {
        let _ = write!(text, "\n  caused by: {cause}");
        next = cause.source();
    }
    let _ = writeln!(io::stderr(), "{text}");
}

/// The last lines of a rank's output, and when it ended.
#[derive(Debug, Default)]
pub(super) struct Tail {
    lines: Mutex<VecDeque<String>>,
    ended: Mutex<Option<Instant>>,
}

impl Tail {
    /// Reads `stream` to its end on a thread of its own; shows the lines too, unless `captured`.
    pub(super) fn follow(
        self: &Arc<Self>,
        stream: impl Read + Send + 'static,
        captured: bool,
    ) -> thread::JoinHandle<()> {
        let tail = Arc::clone(self);
        thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut line = Vec::new();
            while reader
                .read_until(b'\n', &mut line)
                .is_ok_and(|read| read > 0)
            {
                if !captured {
                    let _ = io::stderr().write_all(&line);
                }
                tail.push(String::from_utf8_lossy(&line).trim_end().to_owned());
                line.clear();
            }
            *tail.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        })
    }

    fn push(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// When the output ended, which is when the process did.
    pub(super) fn ended(&self) -> Option<Instant> {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn text(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().cloned().collect::<Vec<_>>().join("\n")
    }
}
