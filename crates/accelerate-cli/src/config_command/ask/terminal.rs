//! Questions to a person at a terminal: arrow keys for menus, lines that can be edited.

use inquire::{Confirm, CustomUserError, InquireError, Select, Text, validator::Validation};

use super::{Ask, Expected, Question, expected};
use crate::{
    config_command::error::{ConfigCommandError, Result},
    report,
};

/// Rows of a menu that are shown at once: enough for all but one of them.
const ROWS: usize = 16;

/// The terminal of this process. It draws on stderr.
pub(crate) struct Terminal;

impl Ask for Terminal {
    fn line(
        &mut self,
        question: Question<'_>,
        expected: &Expected,
        default: Option<&str>,
    ) -> Result<String> {
        let expected = expected.clone();
        let mut prompt = Text::new(question.text)
            .with_help_message(question.help)
            .with_validator(move |text: &str| validate(&expected, text));
        if let Some(default) = default {
            prompt = prompt.with_default(default);
        }
        let text = prompt.prompt().map_err(|error| failure(question, error))?;
        Ok(text.trim().to_owned())
    }

    fn yes_no(&mut self, question: Question<'_>, default: bool) -> Result<bool> {
        Confirm::new(question.text)
            .with_help_message(question.help)
            .with_default(default)
            .with_parser(&|text| expected::yes_no(text.trim()).ok_or(()))
            .with_formatter(&|yes| if yes { "yes" } else { "no" }.to_owned())
            .with_error_message("expected `yes` or `no`")
            .prompt()
            .map_err(|error| failure(question, error))
    }

    fn menu(&mut self, question: Question<'_>, options: &[&str], default: usize) -> Result<usize> {
        let keys = "arrow keys, or number and enter";
        let help = format!("{}; {keys}", question.help);
        Select::new(question.text, options.to_vec())
            .with_help_message(&help)
            .with_starting_cursor(default)
            .with_page_size(ROWS)
            .with_scorer(&|typed, _, option, place| fits(typed, option, place).then_some(0))
            .raw_prompt()
            .map(|chosen| chosen.index)
            .map_err(|error| failure(question, error))
    }

    fn remark(&mut self, text: &str) {
        report::note(text, &[]);
    }
}

fn validate(expected: &Expected, text: &str) -> Result<Validation, CustomUserError> {
    Ok(if expected.accepts(text.trim()) {
        Validation::Valid
    } else {
        Validation::Invalid(format!("expected {expected}").into())
    })
}

/// Whether an option stays in the menu after `typed`: by its place, counted from 0, or by its text.
fn fits(typed: &str, option: &str, place: usize) -> bool {
    match typed.parse::<usize>() {
        Ok(wanted) => wanted == place,
        Err(_) => option.to_lowercase().contains(&typed.to_lowercase()),
    }
}

fn failure(question: Question<'_>, error: InquireError) -> ConfigCommandError {
    match error {
        InquireError::OperationCanceled | InquireError::OperationInterrupted => {
            ConfigCommandError::Cancelled
        }
        source => ConfigCommandError::Terminal {
            question: question.text.to_owned(),
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_narrows_a_menu_by_place_or_text() {
        let options = ["No distributed training", "multi-CPU", "multi-GPU"];
        let left = |typed: &str| {
            let all = options.iter().enumerate();
            all.filter(|(place, option)| fits(typed, option, *place))
                .map(|(place, _)| place)
                .collect::<Vec<_>>()
        };
        assert_eq!(left(""), [0, 1, 2]);
        assert_eq!(left("2"), [2]);
        assert_eq!(left("MULTI"), [1, 2]);
        assert_eq!(left("tpu"), [0_usize; 0]);
    }
}
