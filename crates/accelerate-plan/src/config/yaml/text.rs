//! How a text is quoted, escaped and folded.

use super::{
    page::Page,
    scalar::{Class, classify},
};

/// A line that is longer than this is folded at its next space.
const WIDTH: usize = 80;

/// Where a text stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// Where the lines begin on which it goes on.
    pub(super) indent: usize,
    /// Whether it may take more than one line.
    pub(super) fold: bool,
    /// Whether it is the whole document.
    pub(super) root: bool,
}

/// Writes a text in the plainest way in which it reads back as a text.
pub(super) fn write_text(page: &mut Page, text: &str, place: Place) {
    if classify(text) == Class::Text && may_be_plain(text) {
        write_plain(page, text, place);
    } else if may_be_single_quoted(text) && (place.fold || !text.contains('\n')) {
        write_single_quoted(page, text, place);
    } else {
        write_double_quoted(page, text, place);
    }
}

/// Writes a text without quotes.
pub(super) fn write_plain(page: &mut Page, text: &str, place: Place) {
    page.begin_plain(place.root);
    for run in runs(text) {
        if run == " " && place.fold && page.column() > WIDTH {
            page.begin_line(place.indent);
            page.resume();
        } else {
            page.put(run);
        }
    }
}

fn write_single_quoted(page: &mut Page, text: &str, place: Place) {
    page.mark("'");
    let mut left = text.len();
    for run in runs(text) {
        let inside = left < text.len() && left > run.len();
        left -= run.len();
        if run.starts_with('\n') {
            // One break alone would read back as a space.
            (0..=run.len()).for_each(|_| page.break_line());
            page.begin_line(place.indent);
        } else if run == " " && inside && place.fold && page.column() > WIDTH {
            page.begin_line(place.indent);
        } else {
            page.put(&run.replace('\'', "''"));
        }
    }
    page.closing_mark("'");
}

fn write_double_quoted(page: &mut Page, text: &str, place: Place) {
    page.mark("\"");
    let characters: Vec<char> = text.chars().collect();
    let count = characters.len();
    // Characters from `start` on are not written yet.
    let mut start = 0;
    for (index, &character) in characters.iter().enumerate() {
        if needs_escape(character) {
            put_from(page, &characters, &mut start, index);
            page.put(&escape(character));
            start = index + 1;
        }
        let inside = index > 0 && index + 1 < count;
        let breakable = character == ' ' || start >= index;
        if inside && breakable && place.fold && page.column() + index > WIDTH + start {
            put_from(page, &characters, &mut start, index);
            page.put("\\");
            page.begin_line(place.indent);
            page.resume();
            // A space at the front of a line would be taken for indentation.
            if characters[start] == ' ' {
                page.put("\\");
            }
        }
    }
    put_from(page, &characters, &mut start, count);
    page.closing_mark("\"");
}

/// Writes the characters from `start` up to `end`, if there are any.
fn put_from(page: &mut Page, characters: &[char], start: &mut usize, end: usize) {
    if *start < end {
        page.put(&String::from_iter(&characters[*start..end]));
        *start = end;
    }
}

/// Cuts a text into runs of spaces, runs of line breaks, and what is between them.
fn runs(text: &str) -> impl Iterator<Item = &str> {
    let sort = |byte: &u8| match byte {
        b' ' => 0,
        b'\n' => 1,
        _ => 2,
    };
    text.as_bytes()
        .chunk_by(move |left, right| sort(left) == sort(right))
        .map(<[u8]>::len)
        .scan(0, |start, length| {
            let run = &text[*start..*start + length];
            *start += length;
            Some(run)
        })
}

/// Whether a text without quotes would not be taken for a mark of the grammar.
fn may_be_plain(text: &str) -> bool {
    let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let spaced = text.starts_with(' ') || text.ends_with(' ');
    let document = text.starts_with("---") || text.starts_with("...");
    let marks = "#,[]{}&*!|>'\"%@`";
    let marked = text.starts_with(|first| marks.contains(first));
    let opens = ["-", "?", ":"].contains(&text.split(' ').next().unwrap_or_default());
    let inside = text.contains(": ") || text.ends_with(':') || text.contains(" #");
    printable && !(spaced || document || marked || opens || inside)
}

/// Whether single quotes keep every character of a text.
fn may_be_single_quoted(text: &str) -> bool {
    let printable = text.bytes().all(|byte| matches!(byte, b'\n' | b' '..=b'~'));
    printable && !text.contains("\n ") && !text.contains(" \n")
}

fn needs_escape(character: char) -> bool {
    matches!(character, '"' | '\\') || !matches!(character, ' '..='~')
}

fn escape(character: char) -> String {
    let letter = match character {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '\u{1b}' => 'e',
        '"' => '"',
        '\\' => '\\',
        '\u{85}' => 'N',
        '\u{a0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        other => return numbered(other as u32),
    };
    format!("\\{letter}")
}

fn numbered(code: u32) -> String {
    match code {
        0..=0xff => format!("\\x{code:02X}"),
        0x100..=0xffff => format!("\\u{code:04X}"),
        _ => format!("\\U{code:08X}"),
    }
}
