//! What YAML 1.1 makes of a scalar that is not quoted.
//!
//! The rules are those of PyYAML's safe loader, which are a little narrower than YAML 1.1: a number
//! with an exponent needs a dot and a signed exponent, and single letters are no truth values.

use std::num::IntErrorKind;

use super::{NodeKind, Problem, timestamp::is_timestamp};

/// Which sort of value a text looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Null,
    Bool,
    Int,
    Float,
    /// A date, with or without a time.
    Timestamp,
    /// `<<`, which merges maps.
    Merge,
    /// `=`, which once named the default value of a map.
    Default,
    Text,
}

/// What an unquoted `text` looks like.
pub(super) fn classify(text: &str) -> Class {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Class::Null,
        "<<" => Class::Merge,
        "=" => Class::Default,
        _ if truth(text).is_some() => Class::Bool,
        // No number and no date begins with anything else.
        _ if !text.starts_with(|first: char| "+-.0123456789".contains(first)) => Class::Text,
        _ if is_float(text) => Class::Float,
        _ if is_int(text) => Class::Int,
        _ if is_timestamp(text) => Class::Timestamp,
        _ => Class::Text,
    }
}

/// The value of an unquoted `text` of a class.
///
/// # Errors
/// [`Problem::NumberTooLarge`].
pub(super) fn value(text: &str, class: Class) -> Result<NodeKind, Problem> {
    Ok(match class {
        Class::Null => NodeKind::Null,
        Class::Bool => NodeKind::Bool(truth(text).unwrap_or_default()),
        Class::Int => int(text)?,
        Class::Float => NodeKind::Float(float(text)),
        Class::Timestamp | Class::Merge | Class::Default | Class::Text => {
            NodeKind::Text(text.to_owned())
        }
    })
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Some(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

/// Whether the sign is a minus, and what follows the sign.
fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// Whether there is at least one character, and all of them are underscores or pass `digit`.
fn all_digits(text: &str, digit: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte == b'_' || digit(byte))
}

fn is_decimal(byte: u8) -> bool {
    byte.is_ascii_digit()
}

/// Decimal digits and underscores, a digit first.
fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit()) && all_digits(text, is_decimal)
}

fn is_int(text: &str) -> bool {
    let (_, digits) = split_sign(text);
    if let Some(binary) = digits.strip_prefix("0b") {
        return all_digits(binary, |byte| matches!(byte, b'0' | b'1'));
    }
    if let Some(hexadecimal) = digits.strip_prefix("0x") {
        return all_digits(hexadecimal, |byte| byte.is_ascii_hexdigit());
    }
    if let Some(octal) = digits.strip_prefix('0') {
        return octal.is_empty() || all_digits(octal, |byte| matches!(byte, b'0'..=b'7'));
    }
    is_number(digits) || is_sexagesimal(digits)
}

/// A number to the base of 60, as in `1:30`.
fn is_sexagesimal(text: &str) -> bool {
    let mut parts = text.split(':');
    let first = parts.next().is_some_and(is_number);
    let mut count = 0;
    let rest = parts.all(|part| {
        count += 1;
        matches!(part.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9'])
    });
    first && rest && count > 0
}

fn is_float(text: &str) -> bool {
    let (_, unsigned) = split_sign(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    let Some((whole, rest)) = unsigned.split_once('.') else {
        return false;
    };
    let digits = rest
        .find(|character: char| character != '_' && !character.is_ascii_digit())
        .unwrap_or(rest.len());
    let (fraction, exponent) = rest.split_at(digits);
    match whole {
        // Without digits before the dot there may be no sign.
        "" => text.starts_with('.') && is_number(fraction) && is_exponent(exponent),
        _ if is_number(whole) => is_exponent(exponent),
        _ => is_sexagesimal(whole) && exponent.is_empty(),
    }
}

fn is_exponent(text: &str) -> bool {
    match text.as_bytes() {
        [] => true,
        [b'e' | b'E', b'+' | b'-', digits @ ..] => {
            !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    }
}

fn int(text: &str) -> Result<NodeKind, Problem> {
    let (negative, digits) = split_sign(text);
    let digits = digits.replace('_', "");
    let too_large = || Problem::NumberTooLarge {
        found: text.to_owned(),
    };
    if digits.contains(':') {
        let number = sexagesimal(&digits).ok_or_else(too_large)?;
        return Ok(NodeKind::Int(if negative { -number } else { number }));
    }
    let (digits, base) = match digits.as_bytes() {
        [b'0', b'b', ..] => (&digits[2..], 2),
        [b'0', b'x', ..] => (&digits[2..], 16),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits.as_str(), 10),
    };
    let sign = if negative { "-" } else { "" };
    match i64::from_str_radix(&format!("{sign}{digits}"), base) {
        Ok(number) => Ok(NodeKind::Int(number)),
        // Nothing but underscores after `0x` or `0b`.
        Err(_) if digits.is_empty() => Ok(NodeKind::Text(text.to_owned())),
        Err(error) if *error.kind() == IntErrorKind::InvalidDigit => {
            Ok(NodeKind::Text(text.to_owned()))
        }
        Err(_) => Err(too_large()),
    }
}

fn sexagesimal(digits: &str) -> Option<i64> {
    digits.split(':').try_fold(0_i64, |number, part| {
        number.checked_mul(60)?.checked_add(part.parse().ok()?)
    })
}

fn float(text: &str) -> f64 {
    let (negative, digits) = split_sign(text);
    let digits = digits.replace('_', "").to_ascii_lowercase();
    let number = match digits.as_str() {
        ".inf" => f64::INFINITY,
        ".nan" => f64::NAN,
        // From the last part to the first, so that sums are rounded in PyYAML's order.
        _ => digits
            .rsplit(':')
            .zip(std::iter::successors(Some(1.0), |base| Some(base * 60.0)))
            .map(|(part, base)| part.parse().unwrap_or(f64::NAN) * base)
            .fold(0.0, |sum, part: f64| sum + part),
    };
    if negative { -number } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> NodeKind {
        value(text, classify(text)).unwrap()
    }

    #[test]
    fn whole_numbers_have_five_spellings() {
        for (text, number) in [
            ("0", 0),
            ("-0", 0),
            ("+12", 12),
            ("1_000", 1000),
            ("010", 8),
            ("0_7", 7),
            ("0x1F", 31),
            ("-0x10", -16),
            ("0b101", 5),
            ("1:30", 90),
            ("-190:20:30", -685_230),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(read(text), NodeKind::Int(number), "{text}");
        }
    }

    #[test]
    fn a_number_with_a_fraction_needs_a_dot() {
        for (text, number) in [
            ("1.", 1.0),
            (".5", 0.5),
            ("1.5e-3", 1.5e-3),
            ("1_0.2_5", 10.25),
            ("1:30.5", 90.5),
            ("-.inf", f64::NEG_INFINITY),
        ] {
            assert_eq!(read(text), NodeKind::Float(number), "{text}");
        }
        assert!(matches!(read(".NaN"), NodeKind::Float(number) if number.is_nan()));
    }

    #[test]
    fn what_only_looks_like_something_else_is_a_text() {
        for text in [
            "y",
            "n",
            "None",
            "nULL",
            "oN",
            "1e8",
            "1e-3",
            "1.5e3",
            "-.5",
            "0o14",
            "089",
            "1:60",
            "0:30",
            "-.nan",
            "0x",
            "0x_",
            "0b_",
            ".",
            "..",
            "+",
            "-",
            "1.2.3",
            "2001-01-01",
            "=",
            "１",
            "1:",
            "_1",
        ] {
            assert_eq!(read(text), NodeKind::Text(text.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_refused() {
        for text in [
            "9223372036854775808",
            "0xFFFFFFFFFFFFFFFFF",
            "99999999999999999:00:00",
        ] {
            let refused = value(text, classify(text));
            assert!(matches!(refused, Err(Problem::NumberTooLarge { found }) if found == text));
        }
    }
}
