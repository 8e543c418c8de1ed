//! Plain data as Python shows it.

use indexmap::IndexMap;

use crate::config::{Value, python_float};

/// A map as Python prints a `dict`: single quotes, `True`, `None`, `inf`.
pub(super) fn dict(entries: &IndexMap<String, Value>) -> String {
    let entries = entries
        .iter()
        .map(|(key, value)| format!("{}: {}", text(key), repr(value)));
    format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
}

fn repr(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => python_float(*number),
        Value::Text(value) => text(value),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(repr).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(entries) => dict(entries),
    }
}

fn text(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut shown = String::from(quote);
    for character in text.chars() {
        match character {
            '\\' => shown.push_str("\\\\"),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            character if character == quote => {
                shown.push('\\');
                shown.push(character);
            }
            character => shown.push(character),
        }
    }
    shown.push(quote);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_looks_as_python_shows_it() {
        let inner = IndexMap::from([("on".to_owned(), Value::Bool(true))]);
        let entries = IndexMap::from([
            ("a".to_owned(), Value::Map(inner)),
            ("b".to_owned(), Value::Float(f64::INFINITY)),
            ("c".to_owned(), Value::List(vec![Value::Int(1), Value::Null])),
            ("it's".to_owned(), Value::from("x\n'\"")),
        ]);
        assert_eq!(
            dict(&entries),
            r#"{'a': {'on': True}, 'b': inf, 'c': [1, None], "it's": 'x\n\'"'}"#
        );
    }
}
