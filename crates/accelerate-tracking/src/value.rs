//! What is logged: names in order, each with a number, a text or something nested.

use std::fmt;

use indexmap::IndexMap;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Something that can be logged or is a setting.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Nothing, such as a setting that is not set.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Text.
    Text(String),
    /// Several values.
    List(Vec<Value>),
    /// Values by name.
    Map(Values),
}

/// Values by name, in the order in which they were put in.
///
/// ```
/// use accelerate_tracking::{Value, Values};
///
/// let values = Values::from([("loss", Value::from(0.5)), ("epoch", Value::from(3))]);
/// assert_eq!(values.get("epoch"), Some(&Value::Int(3)));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Values {
    by_name: IndexMap<String, Value>,
}

impl Values {
    /// No values.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a value in; gives back the one of the same name that it replaces.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<Value>) -> Option<Value> {
        self.by_name.insert(name.into(), value.into())
    }

    /// The same with one value more.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.insert(name, value);
        self
    }

    /// The value of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.by_name.get(name)
    }

    /// Takes the value of this name out; the others keep their order.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.by_name.shift_remove(name)
    }

    /// Names and values in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.by_name
            .iter()
            .map(|(name, value)| (name.as_str(), value))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

impl<N: Into<String>, V: Into<Value>, const COUNT: usize> From<[(N, V); COUNT]> for Values {
    fn from(pairs: [(N, V); COUNT]) -> Self {
        pairs.into_iter().collect()
    }
}

impl<N: Into<String>, V: Into<Value>> FromIterator<(N, V)> for Values {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter();
        Self {
            by_name: pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        }
    }
}

impl IntoIterator for Values {
    type Item = (String, Value);
    type IntoIter = indexmap::map::IntoIter<String, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.by_name.into_iter()
    }
}

impl Value {
    /// The number that it is; a yes counts as 1. None for what is no number.
    #[must_use]
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Self::Bool(value) => Some(f64::from(u8::from(*value))),
            Self::Int(value) => Some(as_float(*value)),
            Self::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// What kind of value it is, for messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a bool",
            Self::Int(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }

    /// As Python prints it, for files and services that other programs fill with Python's texts.
    pub(crate) fn python_text(&self) -> String {
        match self {
            Self::Bool(true) => "True".to_owned(),
            Self::Bool(false) => "False".to_owned(),
            Self::Float(number) if number.is_nan() => "nan".to_owned(),
            other => other.to_string(),
        }
    }

    /// As plain JSON, in which numbers that are not finite are texts.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// The nearest `f64`: whole numbers beyond 2^53 lose their last digits.
pub(crate) fn as_float(value: i64) -> f64 {
    value as f64
}

/// Text for people and for services that keep settings as text.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("None"),
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Float(value) => f.write_str(float_text(*value).as_str()),
            Self::Text(text) => f.write_str(text),
            Self::List(_) | Self::Map(_) => self.to_json().fmt(f),
        }
    }
}

/// The shortest text that reads back as the same number, with a point or exponent.
fn float_text(value: f64) -> String {
    format!("{value:?}")
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),* $(,)?) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}

value_from! {
    bool => Bool,
    i8 => Int, i16 => Int, i32 => Int, i64 => Int, u8 => Int, u16 => Int, u32 => Int,
    f32 => Float, f64 => Float,
    &str => Text, String => Text,
    Vec<Value> => List,
    Values => Map,
}

impl From<usize> for Value {
    /// What no `i64` can hold becomes a float.
    fn from(value: usize) -> Self {
        u64::try_from(value).unwrap_or(u64::MAX).into()
    }
}

impl From<u64> for Value {
    /// What no `i64` can hold becomes a float.
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Float(value as f64), Self::Int)
    }
}

impl<V: Into<Value>> From<Option<V>> for Value {
    fn from(value: Option<V>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// JSON has no word for a number that is not finite: it becomes a text.
const NOT_FINITE: [(&str, f64); 3] = [
    ("NaN", f64::NAN),
    ("Infinity", f64::INFINITY),
    ("-Infinity", f64::NEG_INFINITY),
];

/// The text of a number that is not finite.
pub(crate) fn not_finite_text(value: f64) -> Option<&'static str> {
    if value.is_finite() {
        return None;
    }
    let same = |other: &f64| (value.is_nan() && other.is_nan()) || value == *other;
    NOT_FINITE
        .iter()
        .find(|(_, other)| same(other))
        .map(|(text, _)| *text)
}

/// The number that is not finite with this text.
pub(crate) fn not_finite(text: &str) -> Option<f64> {
    NOT_FINITE
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, value)| *value)
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => serializer.serialize_i64(*value),
            Self::Float(value) => match not_finite_text(*value) {
                Some(text) => serializer.serialize_str(text),
                None => serializer.serialize_f64(*value),
            },
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(item)?;
                }
                list.end()
            }
            Self::Map(values) => values.serialize(serializer),
        }
    }
}

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (name, value) in self.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let by_name = IndexMap::deserialize(deserializer)?;
        Ok(Self { by_name })
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, text, bool, list or map")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(not_finite(text).map_or_else(|| Value::Text(text.to_owned()), Value::Float))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut values = Values::new();
        while let Some((name, value)) = entries.next_entry::<String, Value>()? {
            values.insert(name, value);
        }
        Ok(Value::Map(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_order_kinds_and_what_is_not_finite() {
        let values = Values::new()
            .with("z", 1)
            .with("a", 1.0)
            .with("nan", f64::NAN)
            .with("low", f64::NEG_INFINITY)
            .with("list", vec![Value::from(true), Value::Null])
            .with("map", Values::from([("inner", "text")]));
        let text = serde_json::to_string(&values).unwrap();
        assert_eq!(
            text,
            r#"{"z":1,"a":1.0,"nan":"NaN","low":"-Infinity","list":[true,null],"map":{"inner":"text"}}"#
        );
        let back: Values = serde_json::from_str(&text).unwrap();
        assert!(matches!(back.get("nan"), Some(Value::Float(number)) if number.is_nan()));
        assert_eq!(back.get("low"), Some(&Value::Float(f64::NEG_INFINITY)));
        assert_eq!(back.get("z"), Some(&Value::Int(1)));
        assert_eq!(back.get("a"), Some(&Value::Float(1.0)));
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }

    #[test]
    fn numbers_and_text_are_told_apart() {
        assert_eq!(Value::from(true).as_number(), Some(1.0));
        assert_eq!(Value::from(7_usize), Value::Int(7));
        assert_eq!(
            Value::from(u64::MAX),
            Value::Float(18_446_744_073_709_551_615.0)
        );
        assert_eq!(Value::from("7").as_number(), None);
        assert_eq!(Value::from(0.1).to_string(), "0.1");
        assert_eq!(Value::from(1e-5).to_string(), "1e-5");
    }
}
