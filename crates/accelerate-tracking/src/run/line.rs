//! One line of `metrics.jsonl`, read without keeping what is no number.

use std::borrow::Cow;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::value::{Values, as_float, not_finite};

/// A line as it is written.
#[derive(Serialize)]
pub(super) struct MetricsLine<'a> {
    pub(super) t: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) step: Option<i64>,
    pub(super) values: &'a Values,
}

/// A line as it is read for curves: its numbers.
#[derive(Deserialize)]
pub(super) struct NumbersLine<'a> {
    #[serde(default)]
    pub(super) t: f64,
    #[serde(default)]
    pub(super) step: Option<i64>,
    #[serde(borrow, default)]
    pub(super) values: Numbers<'a>,
}

/// A line as it is read for its texts and nested values.
#[derive(Deserialize)]
pub(super) struct WholeLine {
    #[serde(default)]
    pub(super) values: Values,
}

/// Names and numbers; what is no number is left out.
#[derive(Default)]
pub(super) struct Numbers<'a>(pub(super) Vec<(Cow<'a, str>, f64)>);

impl<'de: 'a, 'a> Deserialize<'de> for Numbers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NumbersVisitor)
    }
}

struct NumbersVisitor;

impl<'de> Visitor<'de> for NumbersVisitor {
    type Value = Numbers<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("values by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut numbers = Vec::with_capacity(8);
        while let Some(Name(name)) = entries.next_key()? {
            if let Number(Some(value)) = entries.next_value()? {
                numbers.push((name, value));
            }
        }
        Ok(Numbers(numbers))
    }
}

/// A name, borrowed where it holds no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;
        impl<'de> Visitor<'de> for NameVisitor {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(NameVisitor)
    }
}

/// A number, or something that is none.
struct Number(Option<f64>);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

struct NumberVisitor;

impl<'de> Visitor<'de> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Number, E> {
        Ok(Number(None))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Number, E> {
        Ok(Number(Some(f64::from(u8::from(value)))))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Number, E> {
        Ok(Number(Some(as_float(value))))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Number, E> {
        Ok(Number(crate::Value::from(value).as_number()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Number, E> {
        Ok(Number(Some(value)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Number, E> {
        Ok(Number(not_finite(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Number, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Number(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Number, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Number(None))
    }
}
