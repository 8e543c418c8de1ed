//! Cuts a stream of bytes into pieces that may stand between the lines of other ranks.

use std::{mem, time::Duration};

/// The longest line that is held back to keep it whole.
const LONGEST_LINE: usize = 1 << 20;

/// How long an unfinished line waits for its end before a person at a terminal sees it.
const IDLE_ON_TERMINAL: Duration = Duration::from_millis(100);

/// The same where nobody watches: a progress bar in a file is not urgent.
const IDLE_ELSEWHERE: Duration = Duration::from_secs(1);

/// How long to wait for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Forever,
    For(Duration),
}

/// Gives out whole lines, each with the prefix.
///
/// Progress bars draw over themselves with carriage returns and end no line. They are given out when
/// the stream pauses, and their frames get no prefix, which would make them too long.
#[derive(Debug)]
pub(super) struct Lines {
    prefix: String,
    live: bool,
    pending: Vec<u8>,
    /// Whether what is pending begins a line.
    at_start: bool,
}

impl Lines {
    /// Cuts lines and puts `prefix` before each. With `live`, someone watches and unfinished lines
    /// are shown soon.
    pub(super) fn new(prefix: String, live: bool) -> Self {
        Self {
            prefix,
            live,
            pending: Vec::new(),
            at_start: true,
        }
    }

    /// Adds bytes; returns what can be shown now.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let end = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => self.pending.len() + end + 1,
            None if self.pending.len() + bytes.len() > LONGEST_LINE => {
                self.pending.len() + bytes.len()
            }
            None => 0,
        };
        self.pending.extend_from_slice(bytes);
        self.give(end)
    }

    /// How long to wait for more before [`Lines::when_idle`] has something to show.
    pub(super) fn wait(&self) -> Wait {
        match (self.live, self.idle_end()) {
            (_, 0) => Wait::Forever,
            (true, _) => Wait::For(IDLE_ON_TERMINAL),
            (false, _) => Wait::For(IDLE_ELSEWHERE),
        }
    }

    /// What is shown when the stream pauses: on a terminal everything, elsewhere whole frames of a
    /// progress bar.
    pub(super) fn when_idle(&mut self) -> Vec<u8> {
        self.give(self.idle_end())
    }

    /// What is left at the end of the stream, with its line ended.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let open = !self.at_start || !self.pending.is_empty();
        let mut text = self.give(self.pending.len());
        if open && !text.ends_with(b"\n") {
            text.push(b'\n');
        }
        text
    }

    fn idle_end(&self) -> usize {
        match self.live {
            true => self.pending.len(),
            false => self
                .pending
                .iter()
                .rposition(|byte| *byte == b'\r')
                .map_or(0, |last| last + 1),
        }
    }

    fn give(&mut self, end: usize) -> Vec<u8> {
        let rest = self.pending.split_off(end);
        let text = mem::replace(&mut self.pending, rest);
        let Some(last) = text.last() else { return text };
        let starts_line = mem::replace(&mut self.at_start, *last == b'\n');
        if self.prefix.is_empty() {
            return text;
        }
        let mut shown = Vec::with_capacity(text.len() + self.prefix.len());
        for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let is_frame = line.first() == Some(&b'\r') && line != b"\r\n";
            if (index > 0 || starts_line) && !is_frame {
                shown.extend_from_slice(self.prefix.as_bytes());
            }
            shown.extend_from_slice(line);
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> &str {
        str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let input = b"first\nsecond\r\n\nlast";
        for cut in 0..input.len() {
            let mut lines = Lines::new("0:1 ".to_owned(), false);
            let mut shown = lines.push(&input[..cut]);
            assert!(shown.is_empty() || shown.ends_with(b"\n"));
            shown.extend(lines.push(&input[cut..]));
            shown.extend(lines.finish());
            assert_eq!(text(&shown), "0:1 first\n0:1 second\r\n0:1 \n0:1 last\n");
        }
    }

    #[test]
    fn without_prefix_bytes_pass_unchanged() {
        let mut lines = Lines::new(String::new(), false);
        assert_eq!(lines.push(b"\xff\x00a\nb"), b"\xff\x00a\n");
        assert_eq!(lines.push(b"\n"), b"b\n");
        assert_eq!(lines.finish(), b"");
    }

    #[test]
    fn a_progress_bar_is_shown_frame_by_frame_and_without_prefix() {
        let mut lines = Lines::new("0:0 ".to_owned(), false);
        assert_eq!(lines.push(b"\r 10%"), b"");
        assert_eq!(lines.wait(), Wait::For(IDLE_ELSEWHERE));
        lines.push(b"\r 20%");
        assert_eq!(text(&lines.when_idle()), "\r 10%\r");
        assert_eq!(
            text(&lines.push(b"\r 30%\ndone\n")),
            " 20%\r 30%\n0:0 done\n"
        );
        assert_eq!(lines.wait(), Wait::Forever);
    }

    #[test]
    fn on_a_terminal_an_unfinished_line_is_shown_when_the_stream_pauses() {
        let mut lines = Lines::new("0:0 ".to_owned(), true);
        assert_eq!(lines.push(b"\r 10%"), b"");
        assert_eq!(lines.wait(), Wait::For(IDLE_ON_TERMINAL));
        assert_eq!(text(&lines.when_idle()), "\r 10%");
        assert_eq!(lines.wait(), Wait::Forever);
        assert_eq!(text(&lines.push(b" of 5\nnext\n")), " of 5\n0:0 next\n");
    }

    #[test]
    fn an_endless_line_is_not_held_back_for_ever() {
        let mut lines = Lines::new(String::new(), false);
        let block = vec![b'x'; LONGEST_LINE / 2];
        assert!(lines.push(&block).is_empty());
        assert!(lines.push(&block).is_empty());
        assert_eq!(lines.push(b"y").len(), LONGEST_LINE + 1);
    }

    #[test]
    fn the_last_line_is_ended_even_if_it_was_shown_before() {
        let mut lines = Lines::new(String::new(), true);
        lines.push(b"prompt: ");
        assert_eq!(lines.when_idle(), b"prompt: ");
        assert_eq!(lines.finish(), b"\n");
        assert_eq!(Lines::new(String::new(), true).finish(), b"");
    }
}
