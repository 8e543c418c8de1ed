//! Output that waits while a view has the terminal.

use std::collections::VecDeque;

use super::Stream;
use crate::plain_text;

/// So many bytes are kept; what is older is left out.
const MOST_BYTES: usize = 1 << 20;

/// No more of the end than this is looked at for its last lines.
const LONGEST_LOOK: usize = 64 * 1024;

/// The end of the output, in the order in which it came.
#[derive(Debug, Default)]
pub(super) struct Held {
    pieces: VecDeque<(Stream, Vec<u8>)>,
    bytes: usize,
    left_out: usize,
}

impl Held {
    /// Keeps a text.
    pub(super) fn push(&mut self, stream: Stream, text: &[u8]) {
        self.pieces.push_back((stream, text.to_vec()));
        self.bytes += text.len();
        // The newest piece stays, however long it is.
        while self.bytes > MOST_BYTES && self.pieces.len() > 1 {
            if let Some((_, oldest)) = self.pieces.pop_front() {
                self.bytes -= oldest.len();
                self.left_out += oldest.len();
            }
        }
    }

    /// The last lines, at most so many, as a terminal would show them.
    pub(super) fn last_lines(&self, most: usize) -> Vec<String> {
        let (mut pieces, mut ends, mut length) = (Vec::new(), 0, 0);
        for (_, piece) in self.pieces.iter().rev() {
            if ends > most || length > LONGEST_LOOK {
                break;
            }
            ends += piece.iter().filter(|byte| **byte == b'\n').count();
            length += piece.len();
            pieces.push(piece.as_slice());
        }
        pieces.reverse();
        let bytes = pieces.concat();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        let hidden = lines.len().saturating_sub(most);
        lines
            .into_iter()
            .skip(hidden)
            .map(plain_text::line)
            .collect()
    }

    /// Everything that was kept, after a word about what was not.
    pub(super) fn into_pieces(self) -> impl Iterator<Item = (Stream, Vec<u8>)> {
        let word = (self.left_out > 0).then(|| {
            let text = format!(
                "note: {} bytes of output from before are left out; `--log_dir` keeps all\n",
                self.left_out
            );
            (Stream::Stderr, text.into_bytes())
        });
        word.into_iter().chain(self.pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_in_order() {
        let mut held = Held::default();
        held.push(Stream::Stdout, b"one\ntwo\n");
        held.push(Stream::Stderr, b" 10%\r 20%");
        held.push(Stream::Stdout, b"\nfour\n");
        assert_eq!(held.last_lines(3), ["two", " 20%", "four"]);
        assert_eq!(held.last_lines(1), ["four"]);
        let pieces: Vec<_> = held.into_pieces().collect();
        assert_eq!(pieces[1], (Stream::Stderr, b" 10%\r 20%".to_vec()));
        assert_eq!(pieces.len(), 3);
    }

    #[test]
    fn what_is_left_out_is_told() {
        let mut held = Held::default();
        held.push(Stream::Stdout, &vec![b'x'; MOST_BYTES]);
        held.push(Stream::Stdout, b"end\n");
        let pieces: Vec<_> = held.into_pieces().collect();
        let (stream, word) = &pieces[0];
        assert_eq!(*stream, Stream::Stderr);
        assert!(String::from_utf8_lossy(word).contains("1048576 bytes"));
        assert_eq!(pieces[1], (Stream::Stdout, b"end\n".to_vec()));
    }
}
