//! Sizes as text, to the letter as the original prints and reads them.

use std::fmt;

use serde::{Serialize, Serializer};

const UNITS: [&str; 5] = ["bytes", "KB", "MB", "GB", "TB"];
const STEP: f64 = 1024.0;

/// A number of bytes: whole, or a part of a size that was divided.
///
/// # Source
/// `convert_bytes`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Size {
    /// So many bytes.
    Whole(u64),
    /// Printed with a decimal point even below 1 KB.
    Divided(f64),
}

impl Size {
    fn as_f64(self) -> f64 {
        match self {
            Self::Whole(bytes) => bytes as f64,
            Self::Divided(bytes) => bytes,
        }
    }
}

impl fmt::Display for Size {
    /// The largest unit of 1024 that leaves a number of at least 1, with at most two decimals and
    /// at least one, rounded half to even.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Whole(bytes) = self
            && *bytes < 1024
        {
            return f.pad(&format!("{bytes} {}", UNITS[0]));
        }
        let mut number = self.as_f64();
        for unit in UNITS {
            if number < STEP {
                return f.pad(&format!("{} {unit}", two_decimals(number)));
            }
            number /= STEP;
        }
        f.pad(&format!("{} PB", two_decimals(number)))
    }
}

/// `9.00` becomes `9.0`, `97.70` becomes `97.7`.
fn two_decimals(number: f64) -> String {
    let text = format!("{number:.2}");
    match text.strip_suffix('0') {
        Some(shorter) => shorter.to_owned(),
        None => text,
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Whole(bytes) => serializer.serialize_u64(*bytes),
            Self::Divided(bytes) if bytes.fract() == 0.0 => serializer.serialize_u64(*bytes as u64),
            Self::Divided(bytes) => serializer.serialize_f64(*bytes),
        }
    }
}

/// A text that is no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{found}` is no size: expected a number and one of `GiB`, `MiB`, `KiB`, `GB`, `MB`, `KB`, such \
     as `10GB` or `1.5GiB`"
)]
pub struct NoSize {
    /// The text.
    pub found: String,
}

/// The units that are read, in capitals, and the bytes of each.
const READ_UNITS: [(&str, u64); 6] = [
    ("GIB", 1 << 30),
    ("MIB", 1 << 20),
    ("KIB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
];

/// The bytes of a size such as `10GB` (10^9 bytes each) or `1.5GiB` (2^30 bytes each). Parts of a
/// byte are cut off.
///
/// Capitals do not count, with one exception: a decimal unit that ends with a small `b` is one of
/// bits, so that `4gb` is 500,000,000 bytes.
///
/// ```
/// use accelerate_plan::size_text::convert_file_size_to_int;
///
/// assert_eq!(convert_file_size_to_int("1.5GB")?, 1_500_000_000);
/// assert_eq!(convert_file_size_to_int("2GiB")?, 1 << 31);
/// assert_eq!(convert_file_size_to_int("10Gb")?, 1_250_000_000);
/// # Ok::<(), accelerate_plan::size_text::NoSize>(())
/// ```
///
/// # Errors
/// [`NoSize`] for a text without a known unit, or whose number is more than digits with a decimal
/// point among them, or that is more than `u64::MAX` bytes.
///
/// # Source
/// `convert_file_size_to_int`.
pub fn convert_file_size_to_int(text: &str) -> Result<u64, NoSize> {
    read(text.trim()).ok_or_else(|| NoSize {
        found: text.to_owned(),
    })
}

fn read(text: &str) -> Option<u64> {
    let capitals = text.to_ascii_uppercase();
    let mut units = READ_UNITS.iter();
    let (unit, each) = units.find(|(unit, _)| capitals.ends_with(unit))?;
    let number = text.get(..text.len() - unit.len())?;
    let is_number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    if !number.bytes().all(is_number) {
        return None;
    }
    let bytes = number.parse::<f64>().ok()? * *each as f64;
    // 2^64, which is the first number that does not fit.
    if bytes >= u64::MAX as f64 {
        return None;
    }
    let bytes = bytes as u64;
    let are_bits = each % 1000 == 0 && text.ends_with('b');
    Some(if are_bits { bytes / 8 } else { bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_the_original_reads_them() {
        #[derive(serde::Deserialize)]
        struct Case {
            text: serde_json::Value,
            bytes: Option<u64>,
        }
        let cases = include_str!("../../../tests/golden/file_sizes.json");
        let cases: Vec<Case> = serde_json::from_str(cases).unwrap();
        assert!(cases.len() > 10);
        for case in cases {
            // A number is a limit as it is and never comes here.
            if let Some(text) = case.text.as_str() {
                assert_eq!(convert_file_size_to_int(text).ok(), case.bytes, "{text}");
            }
        }
    }

    #[test]
    fn the_ends_of_what_is_read() {
        for (text, bytes) in [
            ("10gb", Some(1_250_000_000)),
            ("10gB", Some(10_000_000_000)),
            ("30GIB", Some(32_212_254_720)),
            ("2gib", Some(1 << 31)),
            ("512KiB", Some(524_288)),
            ("1kb", Some(125)),
            (" 1.5GB ", Some(1_500_000_000)),
            ("0.0009KB", Some(0)),
            ("20000000000GB", None),
            ("100", None),
            ("GB", None),
            (".GB", None),
            ("1.2.3GB", None),
            ("5k0MB", None),
            ("-1GB", None),
            ("1TB", None),
            ("1MBB", None),
            ("infGB", None),
            ("", None),
            ("\u{e9}GB", None),
        ] {
            assert_eq!(convert_file_size_to_int(text).ok(), bytes, "{text}");
        }
    }

    #[test]
    fn is_the_text_of_the_original() {
        #[derive(serde::Deserialize)]
        struct Case {
            bytes: u64,
            text: String,
        }
        let cases = include_str!("../../../tests/golden/convert_bytes.json");
        let cases: Vec<Case> = serde_json::from_str(cases).unwrap();
        assert!(cases.len() > 30);
        for case in cases {
            assert_eq!(
                Size::Whole(case.bytes).to_string(),
                case.text,
                "{}",
                case.bytes
            );
        }
    }

    #[test]
    fn halves_go_to_the_even_neighbour() {
        let kb = |number: f64| Size::Divided(number * 1024.0).to_string();
        assert_eq!(kb(1.125), "1.12 KB");
        assert_eq!(kb(1.375), "1.38 KB");
        assert_eq!(kb(9.0), "9.0 KB");
        assert_eq!(kb(10.0), "10.0 KB");
        assert_eq!(kb(97.7), "97.7 KB");
        assert_eq!(kb(2.675), "2.67 KB", "the binary value lies below the half");
    }

    #[test]
    fn json_has_a_fraction_only_where_there_is_one() {
        let json = |size| serde_json::to_string(&size).unwrap();
        assert_eq!(json(Size::Whole(5)), "5");
        assert_eq!(json(Size::Divided(52.0)), "52");
        assert_eq!(json(Size::Divided(52.5)), "52.5");
    }

    #[test]
    fn the_ends_of_the_scale() {
        assert_eq!(Size::Whole(1_048_575).to_string(), "1024.0 KB");
        assert_eq!(Size::Divided(512.0).to_string(), "512.0 bytes");
        assert_eq!(Size::Divided(0.5).to_string(), "0.5 bytes");
        assert_eq!(Size::Whole(1 << 50).to_string(), "1.0 PB");
        assert_eq!(Size::Whole(u64::MAX).to_string(), "16384.0 PB");
    }
}
