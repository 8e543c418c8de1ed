//! Plain data as one line of JSON, for messages and for settings that are maps.

use serde_json::{Map, Number, Value as Json};

use super::Value;

/// A value on one line: texts as they are, everything else as JSON.
pub fn inline_json(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        other => to_json(other).to_string(),
    }
}

/// The value of a line of JSON; `None` if it is none.
pub(crate) fn from_inline_json(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().map(from_json)
}

/// Plain data as JSON has it. Numbers that JSON does not know become texts.
pub fn to_json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(number) => Json::Number((*number).into()),
        Value::Float(number) => {
            Number::from_f64(*number).map_or_else(|| Json::String(number.to_string()), Json::Number)
        }
        Value::Text(text) => Json::String(text.clone()),
        Value::List(items) => Json::Array(items.iter().map(to_json).collect()),
        Value::Map(entries) => {
            let entries = entries
                .iter()
                .map(|(key, value)| (key.clone(), to_json(value)));
            Json::Object(entries.collect::<Map<_, _>>())
        }
    }
}

fn from_json(json: Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(value),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => Value::Int(whole),
            None => number.as_f64().map_or(Value::Null, Value::Float),
        },
        Json::String(text) => Value::Text(text),
        Json::Array(items) => Value::List(items.into_iter().map(from_json).collect()),
        Json::Object(entries) => Value::Map(
            entries
                .into_iter()
                .map(|(key, value)| (key, from_json(value)))
                .collect(),
        ),
    }
}
