//! How large one element of a tensor is, by its type.

use std::str::FromStr;

use super::{DeviceMapError, MemorySize};
use crate::choice::named;

named! {
    /// The type of the elements of a tensor, as PyTorch calls it; and three that it has no name for.
    ElementType {
        /// A truth value.
        Bool = "bool" | "torch.bool",
        /// Unsigned, 8 bits.
        UInt8 = "uint8" | "torch.uint8",
        /// Unsigned, 16 bits.
        UInt16 = "uint16" | "torch.uint16",
        /// Unsigned, 32 bits.
        UInt32 = "uint32" | "torch.uint32",
        /// Unsigned, 64 bits.
        UInt64 = "uint64" | "torch.uint64",
        /// Signed, 8 bits.
        Int8 = "int8" | "torch.int8",
        /// Signed, 16 bits.
        Int16 = "int16" | "torch.int16" | "torch.short",
        /// Signed, 32 bits.
        Int32 = "int32" | "torch.int32" | "torch.int",
        /// Signed, 64 bits.
        Int64 = "int64" | "torch.int64" | "torch.long",
        /// Signed, 2 bits, four in a byte.
        Int2 = "int2",
        /// Signed, 4 bits, two in a byte.
        Int4 = "int4",
        /// A float of 4 bits, two in a byte.
        Float4 = "float4" | "fp4" | "float4_e2m1fn_x2" | "torch.float4_e2m1fn_x2",
        /// A float of 6 bits, four in three bytes.
        Float6 = "float6" | "fp6",
        /// A float of 8 bits, of any layout.
        Float8 = "fp8" | "float8",
        /// A float of 8 bits, 4 of them for the exponent.
        Float8E4M3 = "float8_e4m3fn" | "torch.float8_e4m3fn",
        /// A float of 8 bits, 5 of them for the exponent.
        Float8E5M2 = "float8_e5m2" | "torch.float8_e5m2",
        /// The same as `float8_e4m3fn` without a negative zero.
        Float8E4M3Fnuz = "float8_e4m3fnuz" | "torch.float8_e4m3fnuz",
        /// The same as `float8_e5m2` without infinities and a negative zero.
        Float8E5M2Fnuz = "float8_e5m2fnuz" | "torch.float8_e5m2fnuz",
        /// A power of two.
        Float8E8M0 = "float8_e8m0fnu" | "torch.float8_e8m0fnu",
        /// A float of 16 bits, 5 of them for the exponent.
        Float16 = "float16" | "fp16" | "torch.float16" | "torch.half",
        /// A float of 16 bits, 8 of them for the exponent.
        BFloat16 = "bfloat16" | "bf16" | "torch.bfloat16",
        /// A float of 32 bits.
        Float32 = "float32" | "fp32" | "torch.float32" | "torch.float",
        /// A float of 64 bits.
        Float64 = "float64" | "fp64" | "torch.float64" | "torch.double",
        /// Two floats of 16 bits.
        Complex32 = "complex32" | "torch.complex32",
        /// Two floats of 32 bits.
        Complex64 = "complex64" | "torch.complex64",
        /// Two floats of 64 bits.
        Complex128 = "complex128" | "torch.complex128",
    }
}

impl ElementType {
    /// The size of one element in bits.
    ///
    /// # Source
    /// `dtype_byte_size`. Differs: a truth value takes the byte that it takes in memory and in
    /// files, where the original counts an eighth of it and can exceed a limit.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Int2 => 2,
            Self::Int4 | Self::Float4 => 4,
            Self::Float6 => 6,
            Self::Bool
            | Self::UInt8
            | Self::Int8
            | Self::Float8
            | Self::Float8E4M3
            | Self::Float8E5M2
            | Self::Float8E4M3Fnuz
            | Self::Float8E5M2Fnuz
            | Self::Float8E8M0 => 8,
            Self::UInt16 | Self::Int16 | Self::Float16 | Self::BFloat16 => 16,
            Self::UInt32 | Self::Int32 | Self::Float32 | Self::Complex32 => 32,
            Self::UInt64 | Self::Int64 | Self::Float64 | Self::Complex64 => 64,
            Self::Complex128 => 128,
        }
    }

    /// Whether tensors of this type keep it when a model is loaded in another one.
    pub const fn is_whole_number(self) -> bool {
        matches!(
            self,
            Self::Bool
                | Self::UInt8
                | Self::UInt16
                | Self::UInt32
                | Self::UInt64
                | Self::Int2
                | Self::Int4
                | Self::Int8
                | Self::Int16
                | Self::Int32
                | Self::Int64
        )
    }

    /// The memory that so many elements take.
    pub const fn of(self, elements: u64) -> MemorySize {
        MemorySize::from_bits(elements as u128 * self.bits() as u128)
    }
}

impl FromStr for ElementType {
    type Err = DeviceMapError;

    /// Reads the name of a type, with or without `torch.`.
    ///
    /// # Errors
    /// [`DeviceMapError::NoElementType`] for any other text.
    fn from_str(text: &str) -> Result<Self, DeviceMapError> {
        Self::from_name(text).ok_or_else(|| DeviceMapError::NoElementType {
            found: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_types() {
        for (name, bits) in [
            ("bool", 8),
            ("int2", 2),
            ("int4", 4),
            ("fp8", 8),
            ("float8_e4m3fn", 8),
            ("float8_e5m2", 8),
            ("float8_e4m3fnuz", 8),
            ("float8_e5m2fnuz", 8),
            ("float8_e8m0fnu", 8),
            ("torch.float16", 16),
            ("bfloat16", 16),
            ("complex64", 64),
            ("torch.complex128", 128),
        ] {
            assert_eq!(name.parse::<ElementType>().unwrap().bits(), bits, "{name}");
        }
        assert!("float".parse::<ElementType>().is_err());
    }

    #[test]
    fn every_name_with_a_number_says_its_bits() {
        for kind in ElementType::ALL {
            let name = kind.name().split('_').next().unwrap_or_default();
            let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
            if let Ok(bits) = digits.parse::<u32>() {
                assert_eq!(kind.bits(), bits, "{kind}");
            }
        }
    }
}
