//! How questions are put: on a terminal, as plain lines, or by a test.

mod expected;
mod plain;
#[cfg(test)]
mod scripted;
mod terminal;

use std::{
    io::{self, IsTerminal as _},
    ops::RangeInclusive,
};

use accelerate_plan::env::{Environment, TERM};

use super::error::{ConfigCommandError, Result};

pub(crate) use expected::Expected;
pub(crate) use plain::Plain;
#[cfg(test)]
pub(crate) use scripted::Scripted;
pub(crate) use terminal::Terminal;

/// One question: what is asked, and one line that helps to answer it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) text: &'a str,
    pub(crate) help: &'a str,
}

/// The question `text`, with its line of help.
pub(crate) const fn question<'a>(text: &'a str, help: &'a str) -> Question<'a> {
    Question { text, help }
}

/// Puts questions to someone, again and again until the answer can be used.
pub(crate) trait Ask {
    /// A line of text that `expected` accepts. An empty line means `default`, where there is one.
    fn line(
        &mut self,
        question: Question<'_>,
        expected: &Expected,
        default: Option<&str>,
    ) -> Result<String>;

    /// Yes or no.
    fn yes_no(&mut self, question: Question<'_>, default: bool) -> Result<bool>;

    /// The place of one of `options`; `default` is the place of the one that is offered first.
    fn menu(&mut self, question: Question<'_>, options: &[&str], default: usize) -> Result<usize>;

    /// Says something that needs no answer.
    fn remark(&mut self, text: &str);
}

/// The answers as the types that are needed.
impl dyn Ask + '_ {
    /// A text, which must be given where it has no default.
    pub(crate) fn text(&mut self, question: Question<'_>, default: Option<&str>) -> Result<String> {
        self.line(question, &Expected::Text, default)
    }

    /// A whole number in `range`.
    pub(crate) fn whole(
        &mut self,
        question: Question<'_>,
        range: RangeInclusive<i64>,
        default: Option<i64>,
    ) -> Result<i64> {
        let expected = Expected::Whole(range);
        let default = default.map(|number| number.to_string());
        let text = self.line(question, &expected, default.as_deref())?;
        expected::whole(&text).ok_or_else(|| not_understood(question, &expected, &text))
    }

    /// A number that is not negative.
    pub(crate) fn number(&mut self, question: Question<'_>, default: f64) -> Result<f64> {
        let expected = Expected::Number;
        let text = self.line(question, &expected, Some(&format!("{default:?}")))?;
        expected::number(&text).ok_or_else(|| not_understood(question, &expected, &text))
    }

    /// One of several texts.
    pub(crate) fn choice<'a>(
        &mut self,
        question: Question<'_>,
        options: &[&'a str],
        default: usize,
    ) -> Result<&'a str> {
        let place = self.menu(question, options, default)?;
        let chosen = options.get(place).copied();
        chosen.ok_or_else(|| {
            let expected = Expected::menu(options);
            not_understood(question, &expected, &place.to_string())
        })
    }
}

/// The way to ask that fits this process: menus where a person sits at a terminal, else lines.
pub(crate) fn for_this_process() -> Box<dyn Ask> {
    let kind = Environment::from_process().get(&TERM);
    let dumb = matches!(kind.as_ref().map(Option::as_deref), Ok(Some("dumb")));
    if io::stdin().is_terminal() && io::stderr().is_terminal() && !dumb {
        Box::new(Terminal)
    } else {
        Box::new(Plain::new(io::stdin().lock(), io::stderr()))
    }
}

fn not_understood(question: Question<'_>, expected: &Expected, found: &str) -> ConfigCommandError {
    ConfigCommandError::NotUnderstood {
        question: question.text.to_owned(),
        expected: expected.to_string(),
        found: found.to_owned(),
    }
}
