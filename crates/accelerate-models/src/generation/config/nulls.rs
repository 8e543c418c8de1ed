//! Keys that are `null` have their defaults: the original writes what nobody set so.

use serde::{Deserialize, Deserializer};

fn or<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
    default: T,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(default))
}

pub(super) fn or_default<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    or(deserializer, T::default())
}

pub(super) fn or_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    or(deserializer, 1.0)
}

pub(super) fn or_fifty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    or(deserializer, 50)
}

pub(super) fn or_one_beam<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    or(deserializer, 1)
}
