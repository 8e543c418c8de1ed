//! How much of a model each place may hold.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Visitor},
};

use super::{DeviceMapError, MemorySize, Placement};
use crate::size_text::convert_file_size_to_int;

/// How many bytes of a model each place may hold.
///
/// Places that are not named hold nothing, except the disk, which holds anything: a limit for it is
/// kept and not looked at.
///
/// ```
/// use accelerate_plan::device_map::{MaxMemory, Placement};
///
/// let limits: MaxMemory = "0=10GB, 1=1.5GiB, cpu=30GB".parse()?;
/// assert_eq!(limits.get(Placement::Accelerator(0)), Some(10_000_000_000));
/// let json: MaxMemory = r#"{"0": "10GB", "1": 1610612736, "cpu": "30GB"}"#.parse()?;
/// assert_eq!(limits, json);
/// # Ok::<(), accelerate_plan::device_map::DeviceMapError>(())
/// ```
///
/// # Source
/// `get_max_memory` with limits that are given: accelerators come first by their index, then `mps`,
/// `cpu` and `disk`. What a machine has is found elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MaxMemory {
    limits: BTreeMap<Placement, u64>,
}

impl MaxMemory {
    /// The bytes that a place may hold, if it is named.
    pub fn get(&self, place: Placement) -> Option<u64> {
        self.limits.get(&place).copied()
    }

    /// Sets the bytes that a place may hold, and gives what they were.
    pub fn insert(&mut self, place: Placement, bytes: u64) -> Option<u64> {
        self.limits.insert(place, bytes)
    }

    /// The places and their bytes, in the order in which they are filled.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Placement, u64)> {
        self.limits.iter().map(|(place, bytes)| (*place, *bytes))
    }

    /// Whether no place is named.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// The accelerators with an index that may hold something, in order.
    pub fn accelerators(&self) -> Vec<Placement> {
        let places = self
            .iter()
            .filter(|(place, bytes)| matches!(place, Placement::Accelerator(_)) && *bytes > 0);
        places.map(|(place, _)| place).collect()
    }

    /// What a place may hold; [`None`] where that is without limit, which only the disk is.
    pub(super) fn limit(&self, place: Placement) -> Option<MemorySize> {
        match place {
            Placement::Disk => None,
            _ => Some(MemorySize::from_bytes(self.get(place).unwrap_or(0))),
        }
    }

    /// Sets a limit that is not there yet.
    fn add(&mut self, place: Placement, bytes: u64) -> Result<(), DeviceMapError> {
        match self.insert(place, bytes) {
            None => Ok(()),
            Some(_) => Err(DeviceMapError::LimitTwice { place }),
        }
    }
}

impl FromIterator<(Placement, u64)> for MaxMemory {
    fn from_iter<I: IntoIterator<Item = (Placement, u64)>>(limits: I) -> Self {
        Self {
            limits: limits.into_iter().collect(),
        }
    }
}

impl fmt::Display for MaxMemory {
    /// In the form that is read: `0=10000000000,cpu=30000000000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (place, bytes)) in self.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{place}={bytes}")?;
        }
        Ok(())
    }
}

impl FromStr for MaxMemory {
    type Err = DeviceMapError;

    /// Reads `0=10GB,cpu=30GB`, or a JSON object with the same places and sizes. A number without a
    /// unit are bytes.
    ///
    /// # Errors
    /// [`DeviceMapError::NoLimit`], [`DeviceMapError::NoPlacement`], [`DeviceMapError::LimitSize`],
    /// [`DeviceMapError::LimitTwice`], [`DeviceMapError::LimitsJson`].
    fn from_str(text: &str) -> Result<Self, DeviceMapError> {
        if text.trim_start().starts_with('{') {
            return serde_json::from_str(text).map_err(DeviceMapError::LimitsJson);
        }
        let mut limits = Self::default();
        for entry in text.split(',') {
            let no_limit = || DeviceMapError::NoLimit {
                found: entry.trim().to_owned(),
            };
            let (place, size) = entry.split_once('=').ok_or_else(no_limit)?;
            let place = place.parse()?;
            limits.add(place, bytes_of(place, size)?)?;
        }
        Ok(limits)
    }
}

/// The bytes of a size with a unit, or of a number of bytes.
fn bytes_of(place: Placement, text: &str) -> Result<u64, DeviceMapError> {
    let text = text.trim();
    if text.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(bytes) = text.parse()
    {
        return Ok(bytes);
    }
    let bytes = convert_file_size_to_int(text);
    bytes.map_err(|source| DeviceMapError::LimitSize { place, source })
}

impl Serialize for MaxMemory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.limits.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for MaxMemory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LimitsVisitor)
    }
}

struct LimitsVisitor;

/// A limit in a file: bytes, or a text with a unit.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected bytes or a size such as `10GB`")]
enum WrittenLimit {
    Bytes(u64),
    Text(String),
}

impl<'de> Visitor<'de> for LimitsVisitor {
    type Value = MaxMemory;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from places to bytes or to sizes such as `10GB`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<MaxMemory, A::Error> {
        let mut limits = MaxMemory::default();
        while let Some((place, limit)) = entries.next_entry::<Placement, WrittenLimit>()? {
            let bytes = match limit {
                WrittenLimit::Bytes(bytes) => bytes,
                WrittenLimit::Text(text) => {
                    let bytes = bytes_of(place, &text);
                    bytes.map_err(|error| with_cause(&error))?
                }
            };
            limits.add(place, bytes).map_err(de::Error::custom)?;
        }
        Ok(limits)
    }
}

/// An error of a reader has no cause of its own, so the text of the cause goes with it.
fn with_cause<E: de::Error>(error: &DeviceMapError) -> E {
    match std::error::Error::source(error) {
        Some(cause) => E::custom(format_args!("{error}: {cause}")),
        None => E::custom(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let error = text.parse::<MaxMemory>().unwrap_err();
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        format!("{error}{}", cause.unwrap_or_default())
    }

    #[test]
    fn places_come_in_the_order_in_which_they_are_filled() {
        let limits: MaxMemory = "disk=1KB,cpu=30,10=1GiB,2=0,mps=5".parse().unwrap();
        assert_eq!(
            limits.to_string(),
            "2=0,10=1073741824,mps=5,cpu=30,disk=1000"
        );
        assert_eq!(limits.accelerators(), [Placement::Accelerator(10)]);
        assert_eq!(limits.limit(Placement::Disk), None);
        let nothing = limits.limit(Placement::Accelerator(0));
        assert_eq!(nothing, Some(MemorySize::ZERO));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let limits: MaxMemory = "0=10GB,cpu=30gb".parse().unwrap();
        assert_eq!(limits.to_string().parse::<MaxMemory>().unwrap(), limits);
        let json = serde_json::to_string(&limits).unwrap();
        assert_eq!(json, r#"{"0":10000000000,"cpu":3750000000}"#);
        assert_eq!(json.parse::<MaxMemory>().unwrap(), limits);
    }

    #[test]
    fn mistakes_are_told_with_what_was_found() {
        for (text, told) in [
            ("", "`` is no memory limit"),
            ("0", "`0` is no memory limit"),
            ("0=1GB,,cpu=1GB", "`` is no memory limit"),
            ("gpu=1GB", "`gpu` is no place"),
            ("0=1TB", "limit of `0`: `1TB` is no size"),
            ("0=", "limit of `0`: `` is no size"),
            ("0=-5", "limit of `0`: `-5` is no size"),
            ("0=1GB,cuda:0=2GB", "`0` has two memory limits"),
            (r#"{"0": "1XB"}"#, "`1XB` is no size"),
            (r#"{"0": 1, "0": 2}"#, "`0` has two memory limits"),
            (r#"{"0": -1}"#, "cannot read memory limits from JSON"),
            (r#"{"x": 1}"#, "`x` is no place"),
        ] {
            let error = refused(text);
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
