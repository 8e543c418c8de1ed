//! An amount of memory.

use std::{
    fmt,
    iter::Sum,
    ops::{Add, AddAssign},
};

use serde::{Serialize, Serializer};

use crate::size_text::Size;

/// An amount of memory, exact to the bit: there are types of less than a byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemorySize {
    bits: u128,
}

impl MemorySize {
    /// Nothing.
    pub const ZERO: Self = Self { bits: 0 };

    /// So many bits.
    pub const fn from_bits(bits: u128) -> Self {
        Self { bits }
    }

    /// So many bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self {
            bits: bytes as u128 * 8,
        }
    }

    /// Bits.
    pub const fn bits(self) -> u128 {
        self.bits
    }

    /// Bytes, rounded up; at most `u64::MAX`.
    pub const fn bytes(self) -> u64 {
        let bytes = self.bits.div_ceil(8);
        if bytes > u64::MAX as u128 {
            u64::MAX
        } else {
            bytes as u64
        }
    }

    /// Bytes with their fraction, near for more than 2^53.
    pub fn fractional_bytes(self) -> f64 {
        self.bits as f64 / 8.0
    }

    /// All bytes, and the text of a larger unit where there is one: `433258496 bytes (413.19 MB)`.
    pub fn exact(self) -> String {
        match self.bytes() {
            0..1024 => self.to_string(),
            bytes => format!("{bytes} bytes ({self})"),
        }
    }

    /// What is left of this without `other`; nothing if that is more.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self::from_bits(self.bits.saturating_sub(other.bits))
    }
}

impl Add for MemorySize {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::from_bits(self.bits.saturating_add(other.bits))
    }
}

impl AddAssign for MemorySize {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for MemorySize {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::ZERO, Add::add)
    }
}

impl From<MemorySize> for Size {
    fn from(size: MemorySize) -> Self {
        match size.bits % 8 {
            0 => Self::Whole(size.bytes()),
            _ => Self::Divided(size.fractional_bytes()),
        }
    }
}

impl fmt::Display for MemorySize {
    /// As [`Size`] has it: `413.18 MB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Size::from(*self), f)
    }
}

impl Serialize for MemorySize {
    /// Bytes; with a fraction only where there is one.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Size::from(*self).serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_bytes_are_kept_and_rounded_up() {
        let half = MemorySize::from_bits(4);
        assert_eq!(half.bytes(), 1);
        assert_eq!((half + half).bytes(), 1);
        assert_eq!((MemorySize::from_bytes(36) + half).fractional_bytes(), 36.5);
        assert_eq!(
            half.saturating_sub(MemorySize::from_bytes(1)),
            MemorySize::ZERO
        );
        let sizes = [half, MemorySize::from_bytes(2)];
        assert_eq!(sizes.into_iter().sum::<MemorySize>().bits(), 20);
        assert_eq!(MemorySize::from_bits(u128::MAX).bytes(), u64::MAX);
    }

    #[test]
    fn texts_and_json_are_those_of_sizes() {
        let large = MemorySize::from_bytes(433_258_496);
        assert_eq!(large.to_string(), "413.19 MB");
        assert_eq!(large.exact(), "433258496 bytes (413.19 MB)");
        assert_eq!(MemorySize::from_bytes(7).exact(), "7 bytes");
        let json = serde_json::to_string(&[MemorySize::from_bits(12), MemorySize::from_bytes(3)]);
        assert_eq!(json.unwrap(), "[1.5,3]");
    }
}
