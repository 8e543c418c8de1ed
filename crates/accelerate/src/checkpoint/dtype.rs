//! Element types of files and of libtorch: the one table between them.

use accelerate_formats::Dtype;
use tch::Kind;

/// The table; types that only one side knows are absent.
const PAIRS: [(Dtype, Kind); 16] = [
    (Dtype::Bool, Kind::Bool),
    (Dtype::U8, Kind::Uint8),
    (Dtype::I8, Kind::Int8),
    (Dtype::I16, Kind::Int16),
    (Dtype::I32, Kind::Int),
    (Dtype::I64, Kind::Int64),
    (Dtype::F16, Kind::Half),
    (Dtype::Bf16, Kind::BFloat16),
    (Dtype::F32, Kind::Float),
    (Dtype::F64, Kind::Double),
    (Dtype::C64, Kind::ComplexFloat),
    (Dtype::C128, Kind::ComplexDouble),
    (Dtype::F8E5m2, Kind::Float8e5m2),
    (Dtype::F8E4m3, Kind::Float8e4m3fn),
    (Dtype::F8E5m2Fnuz, Kind::Float8e5m2fnuz),
    (Dtype::F8E4m3Fnuz, Kind::Float8e4m3fnuz),
];

/// libtorch's name for a type of a file, where it has the type.
pub fn kind_of(dtype: Dtype) -> Option<Kind> {
    PAIRS
        .iter()
        .find(|(in_file, _)| *in_file == dtype)
        .map(|(_, kind)| *kind)
}

/// The type in a file for one of libtorch's, where files have it.
pub fn dtype_of(kind: Kind) -> Option<Dtype> {
    PAIRS
        .iter()
        .find(|(_, in_torch)| *in_torch == kind)
        .map(|(dtype, _)| *dtype)
}

/// Whether values of one type can become the other without losing their meaning: both are
/// floating-point numbers, both integers, and so on.
pub(super) fn can_become(found: Dtype, expected: Dtype) -> bool {
    family(found).is_some_and(|found| Some(found) == family(expected))
}

#[derive(PartialEq, Eq)]
enum Family {
    Truth,
    Integer,
    Real,
    Complex,
}

fn family(dtype: Dtype) -> Option<Family> {
    use Dtype::{Bf16, Bool, C64, C128, F16, F32, F64, I8, I16, I32, I64, U8};
    use Dtype::{F8E4m3, F8E4m3Fnuz, F8E5m2, F8E5m2Fnuz};
    match dtype {
        Bool => Some(Family::Truth),
        U8 | I8 | I16 | I32 | I64 => Some(Family::Integer),
        F16 | Bf16 | F32 | F64 | F8E5m2 | F8E4m3 | F8E5m2Fnuz | F8E4m3Fnuz => Some(Family::Real),
        C64 | C128 => Some(Family::Complex),
        // libtorch through tch has no such type.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_agree() {
        for (dtype, kind) in PAIRS {
            assert_eq!(kind_of(dtype), Some(kind));
            assert_eq!(dtype_of(kind), Some(dtype));
            assert_eq!(
                dtype.size_in_bits(),
                8 * kind.elt_size_in_bytes(),
                "{dtype}"
            );
        }
    }

    #[test]
    fn a_type_becomes_what_libtorch_has_and_no_other_family() {
        for dtype in Dtype::ALL {
            assert_eq!(
                can_become(dtype, dtype),
                kind_of(dtype).is_some(),
                "{dtype}"
            );
        }
        assert!(can_become(Dtype::Bf16, Dtype::F32));
        assert!(!can_become(Dtype::I8, Dtype::F32));
        assert!(!can_become(Dtype::Bool, Dtype::I64));
    }
}
