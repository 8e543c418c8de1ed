//! Questions as plain lines, for scripts and simple terminals.

use std::{
    fmt::Write as _,
    io::{BufRead, Read as _, Write},
};

use super::{Ask, Expected, Question, expected};
use crate::config_command::error::{ConfigCommandError, Result};

/// A longer line is no answer; it bounds what is read from a file that has no lines.
const LONGEST_LINE: u64 = 64 * 1024;

/// So many wrong answers to one question end the command: input that never ends must not be read
/// for ever.
const TRIES: usize = 20;

/// Reads one line per question from `input`; the questions go to `output`.
pub(crate) struct Plain<R, W> {
    input: R,
    output: W,
}

impl<R: BufRead, W: Write> Plain<R, W> {
    pub(crate) fn new(input: R, output: W) -> Self {
        Self { input, output }
    }

    /// The first line that is an answer, or the default for an empty line.
    fn answer(
        &mut self,
        question: Question<'_>,
        expected: &Expected,
        default: Option<&str>,
    ) -> Result<String> {
        let mut found = String::new();
        for _ in 0..TRIES {
            let Some(line) = self.next_line()? else {
                return Err(ConfigCommandError::EndOfInput {
                    question: question.text.to_owned(),
                    expected: expected.to_string(),
                });
            };
            match (line.as_str(), default) {
                ("", Some(default)) => return Ok(default.to_owned()),
                (text, _) if expected.accepts(text) => return Ok(line),
                _ => self.say(&format!("  expected {expected}, found `{line}`\n")),
            }
            found = line;
        }
        Err(super::not_understood(question, expected, &found))
    }

    /// The next line without spaces around it; `None` at the end of the input.
    fn next_line(&mut self) -> Result<Option<String>> {
        let mut line = Vec::new();
        let mut bounded = self.input.by_ref().take(LONGEST_LINE);
        bounded
            .read_until(b'\n', &mut line)
            .map_err(|source| ConfigCommandError::Input { source })?;
        // Bytes that are no text cannot be what is expected, and are shown as what they resemble.
        let text = String::from_utf8_lossy(&line);
        Ok((!line.is_empty()).then(|| text.trim().to_owned()))
    }

    /// Whoever feeds answers need not read the questions.
    fn say(&mut self, text: &str) {
        let _ = self.output.write_all(text.as_bytes());
        let _ = self.output.flush();
    }

    fn put(&mut self, question: Question<'_>, default: Option<&str>, options: &[&str]) {
        let Question { text, help } = question;
        let default = default.map(|text| format!(" [{text}]")).unwrap_or_default();
        let mut shown = format!("{text}{default}\n  ({help})\n");
        for (place, option) in options.iter().enumerate() {
            // Writing to a `String` cannot fail.
            let _ = writeln!(shown, "  {place:>2}  {option}");
        }
        self.say(&shown);
    }
}

impl<R: BufRead, W: Write> Ask for Plain<R, W> {
    fn line(
        &mut self,
        question: Question<'_>,
        expected: &Expected,
        default: Option<&str>,
    ) -> Result<String> {
        self.put(question, default, &[]);
        self.answer(question, expected, default)
    }

    fn yes_no(&mut self, question: Question<'_>, default: bool) -> Result<bool> {
        let word = if default { "yes" } else { "no" };
        self.put(question, Some(word), &[]);
        let text = self.answer(question, &Expected::YesNo, Some(word))?;
        expected::yes_no(&text)
            .ok_or_else(|| super::not_understood(question, &Expected::YesNo, &text))
    }

    fn menu(&mut self, question: Question<'_>, options: &[&str], default: usize) -> Result<usize> {
        let word = default.to_string();
        self.put(question, Some(&word), options);
        let expected = Expected::menu(options);
        let text = self.answer(question, &expected, Some(&word))?;
        let place = expected::place(&text, options)
            .ok_or_else(|| super::not_understood(question, &expected, &text))?;
        if let Some(option) = options.get(place) {
            self.say(&format!("  -> {option}\n"));
        }
        Ok(place)
    }

    fn remark(&mut self, text: &str) {
        self.say(&format!("note: {text}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::{super::question, *};

    const MACHINES: Question<'_> = question("How many machines?", "all that take part");

    fn plain(input: &str) -> Plain<&[u8], Vec<u8>> {
        Plain::new(input.as_bytes(), Vec::new())
    }

    fn shown(plain: &Plain<&[u8], Vec<u8>>) -> String {
        String::from_utf8(plain.output.clone()).unwrap()
    }

    #[test]
    fn an_empty_line_is_the_default() {
        let mut plain = plain("\n\r\n\n");
        let ask: &mut dyn Ask = &mut plain;
        assert_eq!(ask.whole(MACHINES, 1..=9, Some(3)).unwrap(), 3);
        assert!(ask.yes_no(MACHINES, true).unwrap());
        assert_eq!(ask.choice(MACHINES, &["a", "b"], 1).unwrap(), "b");
    }

    #[test]
    fn a_wrong_answer_is_explained_and_the_next_line_is_read() {
        let mut plain = plain("many\n0\n 4 \n");
        let ask: &mut dyn Ask = &mut plain;
        assert_eq!(ask.whole(MACHINES, 1..=9, Some(1)).unwrap(), 4);
        assert_eq!(
            shown(&plain),
            "How many machines? [1]\n  (all that take part)\n  \
             expected a whole number from 1 to 9, found `many`\n  \
             expected a whole number from 1 to 9, found `0`\n"
        );
    }

    #[test]
    fn a_menu_lists_its_options_and_repeats_the_choice() {
        let mut plain = plain("B\n");
        assert_eq!(plain.menu(MACHINES, &["a", "b"], 0).unwrap(), 1);
        let text = shown(&plain);
        assert!(text.ends_with("   0  a\n   1  b\n  -> b\n"), "{text}");
    }

    #[test]
    fn the_end_of_the_input_names_the_question() {
        let error = plain("maybe\n").yes_no(MACHINES, true).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the input ended before the question `How many machines?` was answered: expected `yes` \
             or `no`"
        );
    }

    #[test]
    fn input_without_end_is_not_read_for_ever() {
        let zeros = std::io::BufReader::new(std::io::repeat(0));
        let error = Plain::new(zeros, Vec::new())
            .yes_no(MACHINES, true)
            .unwrap_err();
        assert!(
            matches!(error, ConfigCommandError::NotUnderstood { .. }),
            "{error}"
        );
    }

    #[test]
    fn a_last_line_needs_no_line_end() {
        assert!(plain("yes").yes_no(MACHINES, false).unwrap());
    }
}
