//! Settings as YAML text.

use crate::value::{Value, Values, not_finite_text};

/// A document with these values at its top.
pub(crate) fn document(values: &Values) -> String {
    if values.is_empty() {
        return "{}\n".to_owned();
    }
    let mut text = String::new();
    map(values, 0, &mut text);
    text
}

fn map(values: &Values, depth: usize, text: &mut String) {
    for (name, value) in values.iter() {
        indent(depth, text);
        text.push_str(&word(name));
        text.push(':');
        below(value, depth, text);
    }
}

/// What stands behind the colon or below it.
fn below(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Map(inner) if !inner.is_empty() => {
            text.push('\n');
            map(inner, depth + 1, text);
        }
        Value::List(items) if !items.is_empty() => {
            text.push('\n');
            for item in items {
                indent(depth, text);
                text.push('-');
                item_of_list(item, depth, text);
            }
        }
        plain => {
            text.push(' ');
            text.push_str(&scalar(plain));
            text.push('\n');
        }
    }
}

/// What stands behind the dash. Nested things are written in JSON, which is YAML too.
fn item_of_list(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Map(inner) if !inner.is_empty() => {
            let mut lines = String::new();
            map(inner, depth + 1, &mut lines);
            text.push(' ');
            // The first key stands behind the dash, the others below it.
            text.push_str(lines.trim_start());
        }
        other => {
            text.push(' ');
            text.push_str(&scalar(other));
            text.push('\n');
        }
    }
}

fn indent(depth: usize, text: &mut String) {
    text.push_str(&"  ".repeat(depth));
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Float(number) => float(*number),
        Value::Text(text) => word(text),
        other => other.to_json().to_string(),
    }
}

/// A number that every reader takes for one: those of YAML 1.1 want a point and a signed exponent.
fn float(number: f64) -> String {
    match not_finite_text(number) {
        Some("NaN") => ".nan".to_owned(),
        Some("Infinity") => ".inf".to_owned(),
        Some(_) => "-.inf".to_owned(),
        None => {
            let text = format!("{number:?}");
            match text.split_once('e') {
                None => text,
                Some((digits, exponent)) => {
                    let point = if digits.contains('.') { "" } else { ".0" };
                    let sign = if exponent.starts_with('-') { "" } else { "+" };
                    format!("{digits}{point}e{sign}{exponent}")
                }
            }
        }
    }
}

/// A text, in quotes where it could be taken for something else.
fn word(text: &str) -> String {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let plain = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'));
    let is_word = !matches!(
        text.to_ascii_lowercase().as_str(),
        "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    if begins && plain && is_word {
        return text.to_owned();
    }
    // A string of JSON is one of YAML.
    Value::from(text).to_json().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_taken_for_something_else() {
        let values = Values::new()
            .with("int", 12)
            .with("small", 1e-5)
            .with("large", 1e20)
            .with("nan", f64::NAN)
            .with("word", "some_value")
            .with("number", "12")
            .with("truth", "Yes")
            .with("colon", "a: b")
            .with("empty", "")
            .with("none", Value::Null)
            .with(
                "list",
                vec![
                    Value::from(1),
                    Value::from(Values::new().with("a", 1).with("b", 2)),
                ],
            )
            .with(
                "map",
                Values::from([("inner", Values::from([("x", true)]))]),
            )
            .with("nothing", Values::new());
        let expected = "\
int: 12
small: 1.0e-5
large: 1.0e+20
nan: .nan
word: some_value
number: \"12\"
truth: \"Yes\"
colon: \"a: b\"
empty: \"\"
none: null
list:
- 1
- a: 1
  b: 2
map:
  inner:
    x: true
nothing: {}
";
        assert_eq!(document(&values), expected);
    }
}
