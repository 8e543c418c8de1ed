//! Our YAML and JSON against what PyYAML and Python's `json` were recorded to write and read
//! (`tests/parity/recorders/yaml_text.py`).
#![expect(
    clippy::unwrap_used,
    reason = "a fixture that cannot be read fails the test"
)]

use accelerate_plan::config::{NodeKind, Value, json, yaml};
use serde_json::Value as Json;

fn fixture() -> Json {
    let text = include_str!("../../../tests/parity/fixtures/yaml_text.json");
    serde_json::from_str(text).unwrap()
}

fn rows(part: &str) -> Vec<[String; 3]> {
    let fixture = fixture();
    let rows = fixture[part].as_array().unwrap();
    rows.iter()
        .map(|row| [0, 1, 2].map(|column| row[column].as_str().unwrap().to_owned()))
        .collect()
}

/// A value from the form in which the recorder keeps it.
fn value(kept: &Json) -> Value {
    match kept {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => Value::Int(number.as_i64().unwrap()),
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(items) => Value::List(items.iter().map(value).collect()),
        Json::Object(fields) => {
            let (sort, inner) = fields.iter().next().unwrap();
            let items = || inner.as_array().unwrap().iter();
            match sort.as_str() {
                "float" => Value::Float(inner.as_str().unwrap().parse().unwrap()),
                "list" => Value::List(items().map(value).collect()),
                _ => Value::Map(
                    items()
                        .map(|pair| (pair[0].as_str().unwrap().to_owned(), value(&pair[1])))
                        .collect(),
                ),
            }
        }
    }
}

/// Equal, and a number that is none counts as equal to itself.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Float(left), Value::Float(right)) => {
            left.to_bits() == right.to_bits() || (left.is_nan() && right.is_nan())
        }
        (Value::List(left), Value::List(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| same(left, right))
        }
        (Value::Map(left), Value::Map(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, value)| right.get(key).is_some_and(|other| same(value, other)))
        }
        _ => left == right,
    }
}

#[test]
fn parity_of_written_yaml() {
    for [kept, expected, _] in rows("values") {
        let value = value(&serde_json::from_str(&kept).unwrap());
        let written = yaml::write(&value);
        assert_eq!(written, expected, "{kept}");
        let read = yaml::parse(&expected).unwrap_or_else(|error| panic!("{error}\n{expected}"));
        assert!(same(&read.to_value(), &value), "{expected}\n{read:?}");
    }
}

#[test]
fn parity_of_written_json() {
    for [kept, _, expected] in rows("values") {
        let value = value(&serde_json::from_str(&kept).unwrap());
        assert_eq!(json::write(&value), expected, "{kept}");
        // Python's extension of JSON, which we refuse to read.
        if !expected.contains("NaN") && !expected.contains("Infinity") {
            let read = json::parse(&expected).unwrap_or_else(|error| panic!("{error}\n{expected}"));
            assert!(same(&read.to_value(), &value), "{expected}");
        }
    }
}

#[test]
fn parity_of_scalars() {
    let rows = rows("scalars");
    assert!(rows.len() > 200);
    for [text, sort, expected] in rows {
        // In a list and as the value of a key.
        for (around, path) in [
            (format!("[ {text} ]\n"), "list"),
            (format!("a: {text}\n"), "map"),
        ] {
            // A comma ends an item.
            if path == "list" && text.contains(',') {
                continue;
            }
            let parsed = yaml::parse(&around);
            if sort == "int" && expected.parse::<i64>().is_err() {
                assert!(parsed.is_err(), "{text}");
                continue;
            }
            let node = match parsed
                .unwrap_or_else(|error| panic!("{around}{error}"))
                .kind
            {
                NodeKind::List(mut items) => items.remove(0),
                NodeKind::Map(mut entries) => entries.remove(0).1,
                other => panic!("{path}: {other:?}"),
            };
            let found = match node.kind {
                NodeKind::Null => ("NoneType", "None".to_owned()),
                NodeKind::Bool(value) => ("bool", if value { "True" } else { "False" }.to_owned()),
                NodeKind::Int(value) => ("int", value.to_string()),
                NodeKind::Float(value) => {
                    let number: f64 = expected.parse().unwrap_or(0.5);
                    let same =
                        value.to_bits() == number.to_bits() || value.is_nan() && number.is_nan();
                    (
                        "float",
                        if same {
                            expected.clone()
                        } else {
                            value.to_string()
                        },
                    )
                }
                NodeKind::Text(value) => ("str", value),
                other => panic!("{path}: {other:?}"),
            };
            // No setting is a date, and where PyYAML gives up the text is good enough.
            let sort = match sort.as_str() {
                "date" | "error" => "str",
                sort => sort,
            };
            let expected = if sort == "str" { &text } else { &expected };
            assert_eq!(
                (found.0, &found.1),
                (sort, expected),
                "`{text}` in a {path}"
            );
        }
    }
}
