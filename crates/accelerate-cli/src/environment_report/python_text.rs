//! Values as Python writes them: people compare these lines with those of the original.

use accelerate_plan::config::{Value, python_float};
use indexmap::IndexMap;

/// One line for each key that holds something, `- key: value`.
pub(super) fn config_lines(config: &IndexMap<String, Value>) -> Vec<String> {
    let held = config.iter().filter(|(_, value)| !value.is_absent());
    held.map(|(key, value)| format!("- {key}: {}", str_of(value)))
        .collect()
}

/// A value as Python's `str` gives it: a text stands for itself.
pub(super) fn str_of(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        other => repr_of(other),
    }
}

/// A value as Python's `repr` gives it: a text is quoted.
pub(super) fn repr_of(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => python_float(*number),
        Value::Text(text) => quoted(text),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(repr_of).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(entries) => {
            let entries: Vec<_> = entries
                .iter()
                .map(|(key, value)| format!("{}: {}", quoted(key), repr_of(value)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// In single quotes, or in double ones if that saves escapes.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut quoted = String::from(quote);
    for letter in text.chars() {
        match letter {
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\\' => quoted.push_str("\\\\"),
            _ if letter == quote => {
                quoted.push('\\');
                quoted.push(letter);
            }
            _ if is_printable(letter) => quoted.push(letter),
            _ => quoted.push_str(&escaped(u32::from(letter))),
        }
    }
    quoted.push(quote);
    quoted
}

/// Both languages call the same characters printable.
fn is_printable(letter: char) -> bool {
    // Behind another letter, Rust does not escape letters that only combine.
    let behind: String = format!("a{letter}").escape_debug().collect();
    matches!(letter, '\'' | '"') || behind == format!("a{letter}")
}

fn escaped(code: u32) -> String {
    match code {
        0..=0xff => format!("\\x{code:02x}"),
        0x100..=0xffff => format!("\\u{code:04x}"),
        _ => format!("\\U{code:08x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, Value)]) -> Value {
        let entries = entries.iter().cloned();
        Value::Map(
            entries
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
        )
    }

    #[test]
    fn numbers_are_written_as_python_writes_them() {
        for (number, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (100_000_000.0, "100000000.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e100, "1.25e+100"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(repr_of(&Value::Float(number)), text);
        }
        assert_eq!(repr_of(&Value::Int(-3)), "-3");
    }

    #[test]
    fn texts_are_quoted_as_python_quotes_them() {
        for (text, quoted) in [
            ("a", "'a'"),
            ("it's", "\"it's\""),
            ("\"it's\"", "'\"it\\'s\"'"),
            ("a\\b\n\t\r", "'a\\\\b\\n\\t\\r'"),
            ("\u{0}\u{7f}\u{a0}\u{ad}", "'\\x00\\x7f\\xa0\\xad'"),
            ("\u{e9}\u{4e2d}e\u{301}", "'\u{e9}\u{4e2d}e\u{301}'"),
            ("\u{2028}\u{200b}", "'\\u2028\\u200b'"),
            ("\u{1f600}\u{10ffff}", "'\u{1f600}\\U0010ffff'"),
        ] {
            assert_eq!(repr_of(&text.into()), quoted);
            assert_eq!(str_of(&text.into()), text);
        }
    }

    #[test]
    fn containers_hold_quoted_texts() {
        let value = map(&[
            ("k", "v".into()),
            (
                "list",
                Value::List(vec![1.into(), Value::Null, true.into()]),
            ),
            ("empty", map(&[])),
        ]);
        let text = "{'k': 'v', 'list': [1, None, True], 'empty': {}}";
        assert_eq!(str_of(&value), text);
    }

    #[test]
    fn what_holds_nothing_has_no_line() {
        let Value::Map(config) = map(&[
            ("use_cpu", false.into()),
            ("gpu_ids", Value::Null),
            ("fsdp_config", map(&[])),
            ("mixed_precision", "no".into()),
            ("tpu_env", Value::List(Vec::new())),
        ]) else {
            unreachable!()
        };
        assert_eq!(
            config_lines(&config),
            ["- use_cpu: False", "- mixed_precision: no", "- tpu_env: []"]
        );
    }
}
