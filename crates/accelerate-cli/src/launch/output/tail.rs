//! The last lines of a stream, for the report about a failure.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

const LINES: usize = 12;
const LONGEST_LINE: usize = 1000;

/// Keeps the last lines of what passes.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<String>,
    open: Vec<u8>,
}

impl Tail {
    /// Adds bytes of the stream.
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut state = self.lock();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            // One line has room for its end and for some of what it began with.
            let room = (4 * LONGEST_LINE).saturating_sub(state.open.len());
            state.open.extend(piece.iter().take(room));
            if piece.ends_with(b"\n") {
                state.close_line();
            }
        }
    }

    /// The last lines, oldest first, without those that hold nothing.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut state = self.lock();
        state.close_line();
        state.lines.iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn close_line(&mut self) {
        let open = std::mem::take(&mut self.open);
        let text = String::from_utf8_lossy(&open);
        // Of a progress bar only the last frame counts.
        let line = text.trim_end().rsplit('\r').next().unwrap_or_default();
        if line.is_empty() {
            return;
        }
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines
            .push_back(line.chars().take(LONGEST_LINE).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_stay() {
        let tail = Tail::default();
        for number in 0..100 {
            tail.push(format!("line {number}\n").as_bytes());
        }
        tail.push(b"\r 1%\r 2%\nunfinish");
        tail.push(b"ed");
        let lines = tail.lines();
        assert_eq!(lines.len(), LINES);
        assert_eq!(lines[LINES - 3..], ["line 99", " 2%", "unfinished"]);
    }

    #[test]
    fn an_endless_line_needs_little_memory() {
        let tail = Tail::default();
        for _ in 0..1000 {
            tail.push(&[b'x'; 1000]);
        }
        assert_eq!(tail.lines(), ["x".repeat(LONGEST_LINE)]);
    }
}
