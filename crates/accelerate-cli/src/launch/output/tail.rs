//! The last lines of a stream, for reports about failures and about what a rank is doing.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
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
    /// When something passed last.
    last: Option<Instant>,
}

impl Tail {
    /// Adds bytes of the stream.
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut state = self.lock();
        state.last = Some(Instant::now());
        let (skipped, bytes) = bytes.split_at(start_of_last_lines(bytes));
        if !skipped.is_empty() {
            state.open.clear();
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            state.extend_line(piece);
            if piece.ends_with(b"\n") {
                state.close_line();
            }
        }
    }

    /// The last lines, oldest first, without those that hold nothing.
    pub(crate) fn lines(&self) -> Vec<String> {
        let state = self.lock();
        let open = state.open_line();
        let count = state.lines.len() + usize::from(open.is_some());
        let lines = state.lines.iter().cloned().chain(open);
        lines.skip(count.saturating_sub(LINES)).collect()
    }

    /// When something passed last; `None` if nothing has.
    pub(crate) fn last_output(&self) -> Option<Instant> {
        self.lock().last
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn extend_line(&mut self, piece: &[u8]) {
        // A character has up to four bytes.
        const ROOM: usize = 4 * LONGEST_LINE;
        self.open.extend_from_slice(piece);
        if self.open.len() > ROOM {
            let end = self.open.trim_ascii_end().len();
            let frames = &self.open[..end];
            if let Some(before) = frames.iter().rposition(|byte| *byte == b'\r') {
                self.open.drain(..=before);
            }
            self.open.truncate(ROOM);
        }
    }

    fn close_line(&mut self) {
        let line = self.open_line();
        self.open.clear();
        let Some(line) = line else { return };
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// The unfinished line, if it holds something.
    fn open_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.open);
        // Of a progress bar only the last frame counts.
        let line = text.trim_end().rsplit('\r').next().unwrap_or_default();
        (!line.is_empty()).then(|| line.chars().take(LONGEST_LINE).collect())
    }
}

/// Where those lines begin that can still be among the last ones: most of a large block cannot.
fn start_of_last_lines(bytes: &[u8]) -> usize {
    // Lines that hold nothing are not kept, so some more are looked at.
    const ENOUGH: usize = 4 * LINES;
    let mut ends = (0..bytes.len())
        .rev()
        .filter(|index| bytes[*index] == b'\n');
    ends.nth(ENOUGH).map_or(0, |end| end + 1)
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

    #[test]
    fn a_progress_bar_that_never_ends_its_line_is_seen_as_it_is_now() {
        let tail = Tail::default();
        for percent in 0..=100 {
            tail.push(format!("{percent}% {}\r", "#".repeat(200)).as_bytes());
        }
        assert!(tail.lines()[0].starts_with("100% #"));
    }

    #[test]
    fn a_large_block_gives_the_same_lines_as_its_parts() {
        let text: String = (0..500).map(|number| format!("line {number}\n")).collect();
        let (whole, parts) = (Tail::default(), Tail::default());
        assert_eq!(whole.last_output(), None);
        whole.push(b"begun before: ");
        whole.push(text.as_bytes());
        text.as_bytes().chunks(7).for_each(|part| parts.push(part));
        assert_eq!(whole.lines(), parts.lines());
        assert!(whole.last_output().is_some());
    }

    #[test]
    fn looking_at_an_unfinished_line_does_not_end_it() {
        let tail = Tail::default();
        tail.push(b"begin");
        assert_eq!(tail.lines(), ["begin"]);
        tail.push(b" and end\n");
        assert_eq!(tail.lines(), ["begin and end"]);
    }
}
