//! How values are written as text and read back.

use std::{
    fmt::Display,
    num::{NonZeroU16, NonZeroU32, NonZeroUsize},
};

use crate::MixedPrecision;

/// Why a text gives no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The text is a way to say "not set", such as a rank of -1.
    CountsAsUnset,
    /// The text is wrong.
    Invalid,
}

/// How the values of a variable are spelled.
#[derive(Debug)]
pub struct Format<T> {
    pub(super) kind: &'static str,
    pub(super) expected: &'static str,
    pub(super) parse: fn(&str) -> Result<T, Refused>,
    pub(super) render: fn(&T) -> String,
}

const TRUE: [&str; 6] = ["y", "yes", "t", "true", "on", "1"];
const FALSE: [&str; 6] = ["n", "no", "f", "false", "off", "0"];
const TRUTH_WORDS: &str = "one of `y`, `yes`, `t`, `true`, `on`, `1`, or one of `n`, `no`, `f`, \
                           `false`, `off`, `0`";

const fn flag(render: fn(&bool) -> String) -> Format<bool> {
    Format {
        kind: "flag",
        expected: TRUTH_WORDS,
        parse: parse_flag,
        render,
    }
}

/// A flag, written `true` or `false`.
pub(super) static FLAG: Format<bool> = flag(written);

/// A flag that Python programs compare with the text `True`.
pub(super) static PYTHON_FLAG: Format<bool> =
    flag(|value| if *value { "True" } else { "False" }.to_owned());

/// A flag, written `1` or `0`.
pub(super) static DIGIT_FLAG: Format<bool> = flag(|value| u8::from(*value).to_string());

/// An index that counts from 0. Negative numbers say "not set".
pub(super) static INDEX: Format<usize> = Format {
    kind: "index",
    expected: "a whole number, at least 0",
    parse: parse_index,
    render: written,
};

/// A number of things. Zero and negative numbers say "not set".
pub(super) static SIZE: Format<NonZeroUsize> = Format {
    kind: "count",
    expected: "a whole number, at least 1",
    parse: parse_size,
    render: written,
};

/// A number of threads. OpenMP allows a list for nested regions; its first item counts.
pub(super) static THREADS: Format<NonZeroUsize> = Format {
    kind: "count",
    expected: "a whole number, at least 1",
    parse: |text| parse_size(text.split(',').next().unwrap_or(text).trim()),
    render: written,
};

/// A number of things where zero is a mistake.
pub(super) static STEPS: Format<NonZeroU32> = Format {
    kind: "count",
    expected: "a whole number, at least 1",
    parse: |text| text.parse().map_err(|_| Refused::Invalid),
    render: written,
};

/// A TCP port that can be connected to.
pub(super) static PORT: Format<NonZeroU16> = Format {
    kind: "port",
    expected: "a port number from 1 to 65535",
    parse: |text| text.parse().map_err(|_| Refused::Invalid),
    render: written,
};

/// Any text.
pub(super) static TEXT: Format<String> = Format {
    kind: "text",
    expected: "any text",
    parse: |text| Ok(text.to_owned()),
    render: String::clone,
};

/// The name of a mixed precision.
pub(super) static PRECISION: Format<MixedPrecision> = Format {
    kind: "precision",
    expected: "one of `no`, `fp16`, `bf16`, `fp8`",
    parse: |text| text.parse().map_err(|_| Refused::Invalid),
    render: written,
};

fn written<T: Display>(value: &T) -> String {
    value.to_string()
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
