//! Sizes as text, to the letter as the original prints them.

use std::fmt;

use serde::{Serialize, Serializer};

const UNITS: [&str; 5] = ["bytes", "KB", "MB", "GB", "TB"];
const STEP: f64 = 1024.0;

/// A number of bytes: whole, or a part of a size that was divided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Size {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_text_of_the_original() {
        #[derive(serde::Deserialize)]
        struct Case {
            bytes: u64,
            text: String,
        }
        let cases = include_str!("../../tests/fixtures/convert_bytes.json");
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
