//! What counts as an answer.

use std::{fmt, ops::RangeInclusive};

/// The answers that a question allows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expected {
    /// Any text but the empty one.
    Text,
    /// Any text.
    TextOrNothing,
    /// A whole number in a range.
    Whole(RangeInclusive<i64>),
    /// A number that is not negative.
    Number,
    /// `yes` or `no`.
    YesNo,
    /// One of these options, or its place, counted from 0.
    Option(Vec<String>),
}

impl Expected {
    pub(crate) fn menu(options: &[&str]) -> Self {
        Self::Option(options.iter().map(|&option| option.to_owned()).collect())
    }

    /// Whether `text`, without spaces around it, is such an answer.
    pub(crate) fn accepts(&self, text: &str) -> bool {
        match self {
            Self::Text => !text.is_empty(),
            Self::TextOrNothing => true,
            Self::Whole(range) => whole(text).is_some_and(|number| range.contains(&number)),
            Self::Number => number(text).is_some(),
            Self::YesNo => yes_no(text).is_some(),
            Self::Option(options) => place(text, options).is_some(),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => write!(f, "a text"),
            Self::TextOrNothing => write!(f, "a text, or an empty line"),
            Self::Whole(range) if *range.end() == i64::MAX => {
                write!(f, "a whole number of at least {}", range.start())
            }
            Self::Whole(range) => {
                let (low, high) = (range.start(), range.end());
                write!(f, "a whole number from {low} to {high}")
            }
            Self::Number => write!(f, "a number that is not negative"),
            Self::YesNo => write!(f, "`yes` or `no`"),
            Self::Option(options) => {
                let last = options.len().saturating_sub(1);
                let names = options.join("`, `");
                write!(f, "a number from 0 to {last}, or one of `{names}`")
            }
        }
    }
}

/// A whole number. `1e8` is one too, since that is how people write large ones.
pub(super) fn whole(text: &str) -> Option<i64> {
    /// Up to here every whole number has a float of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        let fits = text.contains(['e', 'E']) && number.fract() == 0.0 && number.abs() <= EXACT;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "checked to be whole and small"
        )]
        fits.then_some(number as i64)
    })
}

pub(super) fn number(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// The truth words of the command line, in any case.
pub(super) fn yes_no(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "y" | "yes" | "t" | "true" | "on" | "1" => Some(true),
        "n" | "no" | "f" | "false" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// The place of an option that is given by its number, counted from 0, or by its text.
pub(super) fn place<T: AsRef<str>>(text: &str, options: &[T]) -> Option<usize> {
    match text.parse::<usize>() {
        Ok(place) => (place < options.len()).then_some(place),
        Err(_) => {
            let is_it = |option: &T| option.as_ref().eq_ignore_ascii_case(text);
            options.iter().position(is_it)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_may_be_written_with_an_exponent() {
        assert_eq!(whole("1e8"), Some(100_000_000));
        assert_eq!(whole("-3"), Some(-3));
        for wrong in ["", "1.0", "1e-1", "1e300", "inf", "0x10", "one"] {
            assert_eq!(whole(wrong), None, "{wrong}");
        }
        let expected = Expected::Whole(1..=4);
        assert!(expected.accepts("4") && !expected.accepts("5") && !expected.accepts("0"));
    }

    #[test]
    fn numbers_are_finite_and_not_negative() {
        assert_eq!(number("0.5"), Some(0.5));
        assert!(
            ["-1", "nan", "inf", ""]
                .map(number)
                .iter()
                .all(Option::is_none)
        );
    }

    #[test]
    fn options_go_by_number_before_text() {
        let options = ["no", "fp16", "bf16"];
        assert_eq!(place("2", &options), Some(2));
        assert_eq!(place("BF16", &options), Some(2));
        assert_eq!(place("3", &options), None);
        assert_eq!(place("fp", &options), None, "no abbreviations");
    }

    #[test]
    fn what_is_expected_can_be_read() {
        assert_eq!(
            Expected::Whole(1..=i64::MAX).to_string(),
            "a whole number of at least 1"
        );
        let menu = Expected::menu(&["a", "b"]);
        assert_eq!(menu.to_string(), "a number from 0 to 1, or one of `a`, `b`");
    }
}
