//! The numbers that libtorch knows dtypes by.

use tch::Kind;

/// The value of `c10::ScalarType`.
pub(crate) fn number(kind: Kind) -> i32 {
    match kind {
        Kind::Uint8 => 0,
        Kind::Int8 => 1,
        Kind::Int16 => 2,
        Kind::Int => 3,
        Kind::Int64 => 4,
        Kind::Half => 5,
        Kind::Float => 6,
        Kind::Double => 7,
        Kind::ComplexHalf => 8,
        Kind::ComplexFloat => 9,
        Kind::ComplexDouble => 10,
        Kind::Bool => 11,
        Kind::QInt8 => 12,
        Kind::QUInt8 => 13,
        Kind::QInt32 => 14,
        Kind::BFloat16 => 15,
        Kind::Float8e5m2 => 23,
        Kind::Float8e4m3fn => 24,
        Kind::Float8e5m2fnuz => 25,
        Kind::Float8e4m3fnuz => 26,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::kind_name;
    use crate::meta;

    #[test]
    fn every_number_means_the_dtype_it_stands_for() {
        for (kind, name) in [
            (Kind::Uint8, "Byte"),
            (Kind::Int8, "Char"),
            (Kind::Int16, "Short"),
            (Kind::Int, "Int"),
            (Kind::Int64, "Long"),
            (Kind::Half, "Half"),
            (Kind::Float, "Float"),
            (Kind::Double, "Double"),
            (Kind::ComplexFloat, "ComplexFloat"),
            (Kind::Bool, "Bool"),
            (Kind::BFloat16, "BFloat16"),
            (Kind::Float8e5m2, "Float8_e5m2"),
            (Kind::Float8e4m3fn, "Float8_e4m3fn"),
        ] {
            let tensor = meta::empty(&[1], kind).unwrap();
            assert_eq!(kind_name(&tensor).unwrap(), name);
        }
    }
}
