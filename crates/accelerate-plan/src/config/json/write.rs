//! From value to text, as Python's `json.dumps` with an indent of 2 and sorted keys.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::config::{Value, python_float};

/// Writes a value with sorted keys, one entry a line, and a line break at the end.
///
/// Numbers that are not finite become `NaN` and `Infinity` as in Python, which JSON does not know.
pub fn write(value: &Value) -> String {
    let mut text = String::new();
    write_node(&mut text, value, 0);
    text.push('\n');
    text
}

fn write_node(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => text.push_str(&value.to_string()),
        Value::Float(value) => text.push_str(&float(*value)),
        Value::Text(value) => write_text(text, value),
        Value::List(items) if items.is_empty() => text.push_str("[]"),
        Value::Map(entries) if entries.is_empty() => text.push_str("{}"),
        Value::List(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                begin_line(text, index > 0, depth + 1);
                write_node(text, item, depth + 1);
            }
            begin_line(text, false, depth);
            text.push(']');
        }
        Value::Map(entries) => {
            text.push('{');
            let sorted: BTreeMap<_, _> = entries.iter().collect();
            for (index, (key, value)) in sorted.into_iter().enumerate() {
                begin_line(text, index > 0, depth + 1);
                write_text(text, key);
                text.push_str(": ");
                write_node(text, value, depth + 1);
            }
            begin_line(text, false, depth);
            text.push('}');
        }
    }
}

fn begin_line(text: &mut String, comma: bool, depth: usize) {
    text.push_str(if comma { ",\n" } else { "\n" });
    text.extend(std::iter::repeat_n("  ", depth));
}

fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    python_float(value)
}

/// Writes a text in quotes, with ASCII characters only.
fn write_text(text: &mut String, value: &str) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            ' '..='~' => text.push(character),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
        }
    }
    text.push('"');
}
