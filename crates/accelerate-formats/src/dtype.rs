//! Element types, as the files spell them.

use std::fmt;
use std::str::FromStr;

use safetensors::Dtype as FileDtype;

/// The type of one element of a tensor in a file.
///
/// Declared in the order of the safetensors format: later ones need at least the alignment of
/// earlier ones, and the writer puts the largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Dtype {
    /// A truth value, one byte each.
    Bool,
    /// 4-bit float (E2M1), two in a byte.
    F4,
    /// 6-bit float with 2 exponent and 3 mantissa bits, four in three bytes.
    F6E2m3,
    /// 6-bit float with 3 exponent and 2 mantissa bits, four in three bytes.
    F6E3m2,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// 8-bit float with 5 exponent and 2 mantissa bits.
    F8E5m2,
    /// 8-bit float with 4 exponent and 3 mantissa bits, without infinities.
    F8E4m3,
    /// 8-bit power of two: the scale of a block of smaller floats.
    F8E8m0,
    /// 8-bit float with 4 exponent and 3 mantissa bits, no infinity and no negative zero.
    F8E4m3Fnuz,
    /// 8-bit float with 5 exponent and 2 mantissa bits, no infinity and no negative zero.
    F8E5m2Fnuz,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 16-bit integer.
    U16,
    /// IEEE half precision.
    F16,
    /// The upper half of an IEEE single: 8 exponent and 7 mantissa bits.
    Bf16,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
    /// IEEE single precision.
    F32,
    /// Complex number of two IEEE singles.
    C64,
    /// IEEE double precision.
    F64,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 64-bit integer.
    U64,
    /// Complex number of two IEEE doubles. Files of PyTorch have it, safetensors files do not.
    C128,
}

impl Dtype {
    /// Every type of the safetensors format, in declaration order.
    pub const ALL: [Self; 22] = [
        Self::Bool,
        Self::F4,
        Self::F6E2m3,
        Self::F6E3m2,
        Self::U8,
        Self::I8,
        Self::F8E5m2,
        Self::F8E4m3,
        Self::F8E8m0,
        Self::F8E4m3Fnuz,
        Self::F8E5m2Fnuz,
        Self::I16,
        Self::U16,
        Self::F16,
        Self::Bf16,
        Self::I32,
        Self::U32,
        Self::F32,
        Self::C64,
        Self::F64,
        Self::I64,
        Self::U64,
    ];

    /// The size of one element in bits: 4 or 6 for the packed floats, else a multiple of 8.
    pub const fn size_in_bits(self) -> usize {
        match self {
            Self::F4 => 4,
            Self::F6E2m3 | Self::F6E3m2 => 6,
            Self::Bool | Self::U8 | Self::I8 => 8,
            Self::F8E5m2 | Self::F8E4m3 | Self::F8E8m0 => 8,
            Self::F8E4m3Fnuz | Self::F8E5m2Fnuz => 8,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 16,
            Self::I32 | Self::U32 | Self::F32 => 32,
            Self::C64 | Self::F64 | Self::I64 | Self::U64 => 64,
            Self::C128 => 128,
        }
    }

    /// The alignment in bytes that a value of this type needs in memory: that of its parts for
    /// complex numbers, 1 for packed floats.
    pub const fn alignment(self) -> usize {
        match self {
            Self::C64 => 4,
            Self::C128 => 8,
            other if other.size_in_bits() < 8 => 1,
            other => other.size_in_bits() / 8,
        }
    }

    /// The bytes of one part of a number, which is what turns around with the byte order.
    pub(crate) const fn component_bytes(self) -> usize {
        self.alignment()
    }

    /// The size in bits of a whole tensor of this shape, or `None` where it does not fit a `usize`.
    ///
    /// A tensor can only be stored where this is a multiple of 8.
    pub fn bits_of(self, shape: &[usize]) -> Option<usize> {
        shape
            .iter()
            .try_fold(1usize, |product, &n| product.checked_mul(n))?
            .checked_mul(self.size_in_bits())
    }

    /// The name as safetensors files spell it, or would.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::F4 => "F4",
            Self::F6E2m3 => "F6_E2M3",
            Self::F6E3m2 => "F6_E3M2",
            Self::U8 => "U8",
            Self::I8 => "I8",
            Self::F8E5m2 => "F8_E5M2",
            Self::F8E4m3 => "F8_E4M3",
            Self::F8E8m0 => "F8_E8M0",
            Self::F8E4m3Fnuz => "F8_E4M3FNUZ",
            Self::F8E5m2Fnuz => "F8_E5M2FNUZ",
            Self::I16 => "I16",
            Self::U16 => "U16",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::I32 => "I32",
            Self::U32 => "U32",
            Self::F32 => "F32",
            Self::C64 => "C64",
            Self::F64 => "F64",
            Self::I64 => "I64",
            Self::U64 => "U64",
            Self::C128 => "C128",
        }
    }

    /// The name as PyTorch spells it, without `torch.`, where it has the type as a whole number of
    /// bytes for each element.
    pub const fn torch_name(self) -> Option<&'static str> {
        Some(match self {
            Self::Bool => "bool",
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::F8E5m2 => "float8_e5m2",
            Self::F8E4m3 => "float8_e4m3fn",
            Self::F8E8m0 => "float8_e8m0fnu",
            Self::F8E4m3Fnuz => "float8_e4m3fnuz",
            Self::F8E5m2Fnuz => "float8_e5m2fnuz",
            Self::I16 => "int16",
            Self::U16 => "uint16",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::I32 => "int32",
            Self::U32 => "uint32",
            Self::F32 => "float32",
            Self::C64 => "complex64",
            Self::F64 => "float64",
            Self::I64 => "int64",
            Self::U64 => "uint64",
            Self::C128 => "complex128",
            Self::F4 | Self::F6E2m3 | Self::F6E3m2 => return None,
        })
    }

    /// The type that PyTorch gives this name, with or without `torch.`.
    pub fn from_torch_name(name: &str) -> Option<Self> {
        let name = name.strip_prefix("torch.").unwrap_or(name);
        let mut all = Self::ALL.into_iter().chain([Self::C128]);
        all.find(|dtype| dtype.torch_name() == Some(name))
    }

    /// The same type in the vocabulary of the `safetensors` crate, where that has it.
    pub(crate) const fn to_file(self) -> Option<FileDtype> {
        Some(match self {
            Self::Bool => FileDtype::BOOL,
            Self::F4 => FileDtype::F4,
            Self::F6E2m3 => FileDtype::F6_E2M3,
            Self::F6E3m2 => FileDtype::F6_E3M2,
            Self::U8 => FileDtype::U8,
            Self::I8 => FileDtype::I8,
            Self::F8E5m2 => FileDtype::F8_E5M2,
            Self::F8E4m3 => FileDtype::F8_E4M3,
            Self::F8E8m0 => FileDtype::F8_E8M0,
            Self::F8E4m3Fnuz => FileDtype::F8_E4M3FNUZ,
            Self::F8E5m2Fnuz => FileDtype::F8_E5M2FNUZ,
            Self::I16 => FileDtype::I16,
            Self::U16 => FileDtype::U16,
            Self::F16 => FileDtype::F16,
            Self::Bf16 => FileDtype::BF16,
            Self::I32 => FileDtype::I32,
            Self::U32 => FileDtype::U32,
            Self::F32 => FileDtype::F32,
            Self::C64 => FileDtype::C64,
            Self::F64 => FileDtype::F64,
            Self::I64 => FileDtype::I64,
            Self::U64 => FileDtype::U64,
            Self::C128 => return None,
        })
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Dtype {
    type Err = UnknownDtype;

    fn from_str(name: &str) -> Result<Self, UnknownDtype> {
        let known = Self::ALL.into_iter().find(|dtype| dtype.name() == name);
        known.ok_or_else(|| UnknownDtype {
            found: name.to_owned(),
        })
    }
}

/// A name that is no [`Dtype`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown data type `{found}`, expected one of {}", allowed_names())]
#[non_exhaustive]
pub struct UnknownDtype {
    /// What stood where a type was expected.
    pub found: String,
}

fn allowed_names() -> String {
    Dtype::ALL.map(|dtype| format!("`{dtype}`")).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_safetensors_crate() {
        for dtype in Dtype::ALL {
            let theirs = dtype.to_file().unwrap();
            assert_eq!(dtype.name(), theirs.to_string());
            assert_eq!(dtype.size_in_bits(), theirs.bitsize());
        }
        assert_eq!(Dtype::C128.to_file(), None);
        assert!(Dtype::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(
            Dtype::ALL
                .windows(2)
                .all(|pair| pair[0].to_file() < pair[1].to_file())
        );
    }

    #[test]
    fn names_read_back() {
        for dtype in Dtype::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
            if let Some(name) = dtype.torch_name() {
                assert_eq!(Dtype::from_torch_name(name), Some(dtype));
            }
        }
        assert_eq!(
            Dtype::from_torch_name("torch.complex128"),
            Some(Dtype::C128)
        );
        assert_eq!(Dtype::from_torch_name("quint8"), None);
    }

    #[test]
    fn an_unknown_name_is_told_with_the_allowed_ones() {
        let error = "float32".parse::<Dtype>().unwrap_err();
        assert_eq!(error.found, "float32");
        let text = error.to_string();
        assert!(
            text.starts_with("unknown data type `float32`, expected one of `BOOL`, "),
            "{text}"
        );
        assert!(text.ends_with("`U64`"), "{text}");
    }

    #[test]
    fn sizes_do_not_wrap() {
        assert_eq!(Dtype::F32.bits_of(&[]), Some(32));
        assert_eq!(Dtype::F4.bits_of(&[3, 5]), Some(60));
        assert_eq!(Dtype::I64.bits_of(&[0, 7]), Some(0));
        assert_eq!(Dtype::U8.bits_of(&[usize::MAX]), None);
        assert_eq!(Dtype::U8.bits_of(&[1 << 40, 1 << 40]), None);
    }

    #[test]
    fn alignment_is_that_of_one_part() {
        assert_eq!(
            [Dtype::F4, Dtype::F16, Dtype::C64, Dtype::F64, Dtype::C128].map(Dtype::alignment),
            [1, 2, 4, 8, 8]
        );
    }
}
