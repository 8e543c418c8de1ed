//! How values are written as text and read back.

use std::{
    fmt::Display,
    num::{NonZeroU16, NonZeroU32, NonZeroUsize},
};

use crate::{MixedPrecision, config::python_float};

/// Why a text gives no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The text is a way to say "not set", such as a rank of -1.
    CountsAsUnset,
    /// The text is wrong.
    Invalid,
}

/// How the values of a variable are spelled.
#[derive(Debug)]
pub struct Format<T> {
    pub(crate) kind: &'static str,
    pub(crate) expected: &'static str,
    /// The only texts that are allowed, where there are few.
    pub(crate) choices: &'static [&'static str],
    pub(crate) parse: fn(&str) -> Result<T, Refused>,
    pub(crate) render: fn(&T) -> String,
}

const TRUE: [&str; 6] = ["y", "yes", "t", "true", "on", "1"];
const FALSE: [&str; 6] = ["n", "no", "f", "false", "off", "0"];
const TRUTH_WORDS: &str = "one of `y`, `yes`, `t`, `true`, `on`, `1`, or one of `n`, `no`, `f`, \
                           `false`, `off`, `0`";

const fn flag(render: fn(&bool) -> String) -> Format<bool> {
    Format {
        kind: "flag",
        expected: TRUTH_WORDS,
        choices: &[],
        parse: parse_flag,
        render,
    }
}

/// A flag, written `true` or `false`.
pub(crate) static FLAG: Format<bool> = flag(written);

/// A flag that Python programs compare with the text `True`.
pub(crate) static PYTHON_FLAG: Format<bool> =
    flag(|value| if *value { "True" } else { "False" }.to_owned());

/// A flag, written `1` or `0`.
pub(crate) static DIGIT_FLAG: Format<bool> = flag(|value| u8::from(*value).to_string());

/// An index that counts from 0. Negative numbers say "not set".
pub(crate) static INDEX: Format<usize> = Format {
    kind: "index",
    expected: "a whole number, at least 0",
    choices: &[],
    parse: parse_index,
    render: written,
};

/// A number of things. Zero and negative numbers say "not set".
pub(crate) static SIZE: Format<NonZeroUsize> = Format {
    kind: "count",
    expected: "a whole number, at least 1",
    choices: &[],
    parse: parse_size,
    render: written,
};

/// A number of threads. OpenMP allows a list for nested regions; its first item counts.
pub(crate) static THREADS: Format<NonZeroUsize> = Format {
    kind: "count",
    expected: "a whole number, at least 1",
    choices: &[],
    parse: |text| parse_size(text.split(',').next().unwrap_or(text).trim()),
    render: written,
};

/// A number of things where zero is a mistake.
pub(crate) static STEPS: Format<NonZeroU32> = Format {
    kind: "count",
    expected: "a whole number, at least 1",
    choices: &[],
    parse: |text| text.parse().map_err(|_| Refused::Invalid),
    render: written,
};

/// A number of steps, or `auto`: somebody else says it, which counts as not set.
pub(crate) static STEPS_OR_AUTO: Format<NonZeroU32> = Format {
    kind: "count",
    expected: "a whole number, at least 1, or `auto`",
    choices: &[],
    parse: |text| not_auto(text).and_then(STEPS.parse),
    render: written,
};

/// A number that is not negative, or `auto`: somebody else says it, which counts as not set.
pub(crate) static NUMBER_OR_AUTO: Format<f64> = Format {
    kind: "number",
    expected: "a number, at least 0, or `auto`",
    choices: &[],
    parse: |text| not_auto(text).and_then(NUMBER.parse),
    render: |number| python_float(*number),
};

/// The word for a value that somebody else says.
pub(crate) const AUTO: &str = "auto";

fn not_auto(text: &str) -> Result<&str, Refused> {
    match text {
        AUTO => Err(Refused::CountsAsUnset),
        text => Ok(text),
    }
}

/// A TCP port that can be connected to.
pub(crate) static PORT: Format<NonZeroU16> = Format {
    kind: "port",
    expected: "a port number from 1 to 65535",
    choices: &[],
    parse: |text| text.parse().map_err(|_| Refused::Invalid),
    render: written,
};

/// Any text.
pub(crate) static TEXT: Format<String> = Format {
    kind: "text",
    expected: "any text",
    choices: &[],
    parse: |text| Ok(text.to_owned()),
    render: String::clone,
};

/// The name of a mixed precision.
pub(crate) static PRECISION: Format<MixedPrecision> = Format {
    kind: "precision",
    expected: "one of `no`, `fp16`, `bf16`, `fp8`",
    choices: &["no", "fp16", "bf16", "fp8"],
    parse: |text| text.parse().map_err(|_| Refused::Invalid),
    render: written,
};

/// A whole number, 0 included.
pub(crate) static WHOLE: Format<u64> = Format {
    kind: "number",
    expected: "a whole number, at least 0",
    choices: &[],
    parse: parse_whole,
    render: written,
};

/// A number of things where 0 and less are mistakes.
pub(crate) static COUNT: Format<NonZeroUsize> = Format {
    kind: "count",
    expected: "a whole number, at least 1",
    choices: &[],
    parse: |text| text.parse().map_err(|_| Refused::Invalid),
    render: written,
};

/// A port, or 0 for a free one.
pub(crate) static PORT_OR_FREE: Format<u16> = Format {
    kind: "port",
    expected: "a port number from 1 to 65535, or 0 for a free one",
    choices: &[],
    parse: |text| text.parse().map_err(|_| Refused::Invalid),
    render: written,
};

/// A number that is not negative.
pub(crate) static NUMBER: Format<f64> = Format {
    kind: "number",
    expected: "a number, at least 0",
    choices: &[],
    parse: |text| match text.parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number),
        _ => Err(Refused::Invalid),
    },
    render: |number| python_float(*number),
};

/// A stage of ZeRO.
pub(crate) static STAGE: Format<u64> = Format {
    kind: "stage",
    expected: "one of `0`, `1`, `2`, `3`",
    choices: &["0", "1", "2", "3"],
    parse: |text| match text.parse() {
        Ok(stage @ 0..=3) => Ok(stage),
        _ => Err(Refused::Invalid),
    },
    render: written,
};

fn written<T: Display>(value: &T) -> String {
    value.to_string()
}

/// Digits may be grouped, and a large number may be written as `1e8`.
fn parse_whole(text: &str) -> Result<u64, Refused> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Ok(number) = text.replace('_', "").parse() {
        return Ok(number);
    }
    match text.parse::<f64>() {
        Ok(number) if number.fract() == 0.0 && (0.0..EXACT).contains(&number) => {
            format!("{number:.0}").parse().map_err(|_| Refused::Invalid)
        }
        _ => Err(Refused::Invalid),
    }
}

/// The truth value of a word, in any case: `yes`, `off`, `1` and their like.
pub fn truth(word: &str) -> Option<bool> {
    parse_flag(word).ok()
}

fn parse_flag(text: &str) -> Result<bool, Refused> {
    let is_in = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    match (is_in(&TRUE), is_in(&FALSE)) {
        (true, _) => Ok(true),
        (_, true) => Ok(false),
        _ => Err(Refused::Invalid),
    }
}

fn parse_index(text: &str) -> Result<usize, Refused> {
    match text.parse::<i64>() {
        Ok(number) => usize::try_from(number).map_err(|_| Refused::CountsAsUnset),
        Err(_) => Err(Refused::Invalid),
    }
}

fn parse_size(text: &str) -> Result<NonZeroUsize, Refused> {
    parse_index(text).and_then(|number| NonZeroUsize::new(number).ok_or(Refused::CountsAsUnset))
}
