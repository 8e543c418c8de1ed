//! A place for a part of a model.

use std::{fmt, str::FromStr};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};

use super::DeviceMapError;

/// A place for a part of a model.
///
/// In the order in which places are filled: accelerators by their index, the accelerator of Apple's
/// chips, CPU memory, disk.
///
/// ```
/// use accelerate_plan::device_map::Placement;
///
/// let place: Placement = "cuda:1".parse()?;
/// assert_eq!(place, Placement::Accelerator(1));
/// assert_eq!(place.to_string(), "1");
/// # Ok::<(), accelerate_plan::device_map::DeviceMapError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placement {
    /// The accelerator with this index.
    Accelerator(u32),
    /// The accelerator of Apple's chips, which shares the memory of the CPU.
    Mps,
    /// CPU memory.
    Cpu,
    /// Disk.
    Disk,
}

impl Placement {
    /// Whether a part that is placed here is also computed here.
    ///
    /// Parts in CPU memory are, where no accelerator holds another part.
    pub const fn is_accelerator(self) -> bool {
        matches!(self, Self::Accelerator(_) | Self::Mps)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accelerator(index) => f.pad(&index.to_string()),
            Self::Mps => f.pad("mps"),
            Self::Cpu => f.pad("cpu"),
            Self::Disk => f.pad("disk"),
        }
    }
}

/// What PyTorch calls its accelerators.
const ACCELERATORS: [&str; 5] = ["cuda", "xpu", "npu", "hpu", "mlu"];

impl FromStr for Placement {
    type Err = DeviceMapError;

    /// Reads an index, `mps`, `cpu`, `disk`, or a device of PyTorch such as `cuda:1`. A device
    /// without an index is the first one.
    ///
    /// # Errors
    /// [`DeviceMapError::NoPlacement`] for any other text.
    fn from_str(text: &str) -> Result<Self, DeviceMapError> {
        let no_placement = || DeviceMapError::NoPlacement {
            found: text.to_owned(),
        };
        let name = text.trim();
        match name {
            "mps" | "mps:0" => return Ok(Self::Mps),
            "cpu" => return Ok(Self::Cpu),
            "disk" => return Ok(Self::Disk),
            _ if ACCELERATORS.contains(&name) => return Ok(Self::Accelerator(0)),
            _ => {}
        }
        let index = match name.split_once(':') {
            Some((kind, index)) if ACCELERATORS.contains(&kind) => index,
            Some(_) => return Err(no_placement()),
            None => name,
        };
        // `parse` would take a sign.
        if !index.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(no_placement());
        }
        index
            .parse()
            .map(Self::Accelerator)
            .map_err(|_| no_placement())
    }
}

impl Serialize for Placement {
    /// A number for an accelerator, a text for other places.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Accelerator(index) => serializer.serialize_u32(*index),
            Self::Mps | Self::Cpu | Self::Disk => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Placement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PlacementVisitor)
    }
}

struct PlacementVisitor;

impl Visitor<'_> for PlacementVisitor {
    type Value = Placement;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the index of an accelerator, `mps`, `cpu` or `disk`")
    }

    fn visit_u64<E: de::Error>(self, index: u64) -> Result<Placement, E> {
        let index = u32::try_from(index);
        index.map(Placement::Accelerator).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Placement, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_places() {
        for (text, place) in [
            ("0", Placement::Accelerator(0)),
            (" 12 ", Placement::Accelerator(12)),
            ("cuda", Placement::Accelerator(0)),
            ("cuda:3", Placement::Accelerator(3)),
            ("xpu:1", Placement::Accelerator(1)),
            ("mps", Placement::Mps),
            ("cpu", Placement::Cpu),
            ("disk", Placement::Disk),
        ] {
            assert_eq!(text.parse::<Placement>().unwrap(), place, "{text}");
        }
        for text in [
            "",
            "-1",
            "+1",
            "gpu",
            "cuda:",
            "cuda:x",
            "cpu:0",
            "meta",
            "4294967296",
        ] {
            let error = text.parse::<Placement>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn json_has_numbers_for_accelerators() {
        let places = [
            Placement::Accelerator(7),
            Placement::Mps,
            Placement::Cpu,
            Placement::Disk,
        ];
        let json = serde_json::to_string(&places).unwrap();
        assert_eq!(json, r#"[7,"mps","cpu","disk"]"#);
        assert_eq!(
            serde_json::from_str::<[Placement; 4]>(&json).unwrap(),
            places
        );
        assert!(serde_json::from_str::<Placement>("-1").is_err());
        assert!(serde_json::from_str::<Placement>("1.5").is_err());
    }
}
