//! Answers that a test has prepared.

use super::{Ask, Expected, Question, expected, not_understood};
use crate::config_command::error::{ConfigCommandError, Result};

/// Answers each question whose text contains a prepared fragment, and takes the default of all
/// others. Every prepared answer serves once.
pub(crate) struct Scripted {
    answers: Vec<(&'static str, &'static str)>,
    /// What was asked, in order.
    pub(crate) asked: Vec<String>,
    /// What was said besides.
    pub(crate) remarks: Vec<String>,
}

impl Scripted {
    pub(crate) fn new(answers: &[(&'static str, &'static str)]) -> Self {
        Self {
            answers: answers.to_vec(),
            asked: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// The answers that no question has asked for.
    pub(crate) fn left(&self) -> &[(&'static str, &'static str)] {
        &self.answers
    }

    fn answer(
        &mut self,
        question: Question<'_>,
        expected: &Expected,
        default: Option<&str>,
    ) -> Result<String> {
        self.asked.push(question.text.to_owned());
        assert!(!question.help.is_empty(), "`{}` has no help", question.text);
        let serves = |(fragment, _): &(&str, &str)| question.text.contains(fragment);
        let text = match self.answers.iter().position(serves) {
            Some(place) => self.answers.remove(place).1,
            None => default.ok_or_else(|| ConfigCommandError::EndOfInput {
                question: question.text.to_owned(),
                expected: expected.to_string(),
            })?,
        };
        if expected.accepts(text) {
            Ok(text.to_owned())
        } else {
            Err(not_understood(question, expected, text))
        }
    }
}

impl Ask for Scripted {
    fn line(
        &mut self,
        question: Question<'_>,
        expected: &Expected,
        default: Option<&str>,
    ) -> Result<String> {
        self.answer(question, expected, default)
    }

    fn yes_no(&mut self, question: Question<'_>, default: bool) -> Result<bool> {
        let default = if default { "yes" } else { "no" };
        let text = self.answer(question, &Expected::YesNo, Some(default))?;
        Ok(expected::yes_no(&text).unwrap())
    }

    fn menu(&mut self, question: Question<'_>, options: &[&str], default: usize) -> Result<usize> {
        let default = default.to_string();
        let text = self.answer(question, &Expected::menu(options), Some(&default))?;
        Ok(expected::place(&text, options).unwrap())
    }

    fn remark(&mut self, text: &str) {
        self.remarks.push(text.to_owned());
    }
}
