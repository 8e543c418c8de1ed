//! Text of others as a terminal shows it in the end, and nothing that would move its cursor.

use std::str::Chars;

/// A line without colours and other orders to a terminal. Of a progress bar the last frame is left.
pub(crate) fn line(line: &str) -> String {
    let line = line.trim_end_matches(['\r', '\n']);
    let line = line.rsplit('\r').next().unwrap_or(line);
    let mut shown = String::with_capacity(line.len());
    let mut signs = line.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '\x1b' => skip_sequence(&mut signs),
            '\t' => shown.push_str("    "),
            sign if sign.is_control() => {}
            sign => shown.push(sign),
        }
    }
    shown
}

/// Passes over what an escape sign begins: `[` up to a letter, or one sign.
fn skip_sequence(signs: &mut Chars<'_>) {
    if signs.next() == Some('[') {
        signs.find(|sign| ('@'..='~').contains(sign));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_a_terminal_shows_them() {
        assert_eq!(line("a line\tof text\r\n"), "a line    of text");
        assert_eq!(line("\x1b[1;31mred\x1b[0m\x07"), "red");
        assert_eq!(line(" 10%\r 50%\r100%\r"), "100%");
        assert_eq!(line("a\x1b[2Jb\u{9b}c"), "abc");
        assert_eq!(line("\x1b[3"), "");
    }
}
