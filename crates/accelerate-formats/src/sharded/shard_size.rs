//! How large a file may become.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// Units by their names, in bytes.
const UNITS: [(&str, f64); 4] = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)];

/// The most bytes of tensors in one file, unless a single tensor is larger.
///
/// As text it is a number and one of `TB`, `GB`, `MB`, `KB`, which are powers of 1000: `5GB`,
/// `1.5 gb`. The default is 10 GB.
///
/// # Source
/// `save_model`, which knows neither `GiB` nor a number without a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardSize(NonZeroU64);

impl ShardSize {
    /// No limit: one file for everything.
    pub const UNLIMITED: Self = Self(NonZeroU64::MAX);

    /// So many bytes.
    pub fn from_bytes(bytes: NonZeroU64) -> Self {
        Self(bytes)
    }

    /// In bytes.
    pub fn bytes(self) -> u64 {
        self.0.get()
    }
}

impl Default for ShardSize {
    fn default() -> Self {
        Self(NonZeroU64::new(10_000_000_000).unwrap_or(NonZeroU64::MAX))
    }
}

/// A text that is no [`ShardSize`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{found}` is no size of a file: expected a number above 0 and one of TB, GB, MB, KB, such as `5GB`"
)]
#[non_exhaustive]
pub struct ShardSizeFault {
    /// The text.
    pub found: String,
}

impl FromStr for ShardSize {
    type Err = ShardSizeFault;

    fn from_str(text: &str) -> Result<Self, ShardSizeFault> {
        parse(text).ok_or_else(|| ShardSizeFault {
            found: text.to_owned(),
        })
    }
}

fn parse(text: &str) -> Option<ShardSize> {
    let text = text.trim().to_ascii_uppercase();
    let (number, unit) = UNITS
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    let bytes = number.trim().parse::<f64>().ok()? * unit;
    if !(bytes.is_finite() && (1.0..1e18).contains(&bytes)) {
        return None;
    }
    NonZeroU64::new(bytes as u64).map(ShardSize)
}

impl fmt::Display for ShardSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes() as f64;
        let unit = UNITS.iter().find(|(_, unit)| bytes >= *unit);
        match unit {
            Some((name, unit)) => write!(f, "{}{name}", bytes / unit),
            None => write!(f, "{}KB", bytes / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_the_original_reads_them() {
        let bytes = |text: &str| text.parse::<ShardSize>().map(ShardSize::bytes).ok();
        assert_eq!(bytes("5GB"), Some(5_000_000_000));
        assert_eq!(bytes(" 1.5 gb "), Some(1_500_000_000));
        assert_eq!(bytes("10MB"), Some(10_000_000));
        assert_eq!(bytes("2tb"), Some(2_000_000_000_000));
        assert_eq!(bytes("0.5KB"), Some(500));
        for wrong in [
            "5GiB", "100", "GB", "-1GB", "0GB", "nanGB", "infTB", "1e30GB", "",
        ] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        assert_eq!(ShardSize::default().to_string(), "10GB");
        assert_eq!("1500KB".parse::<ShardSize>().unwrap().to_string(), "1.5MB");
    }
}
