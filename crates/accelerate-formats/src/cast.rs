//! Numbers of one type as numbers of another.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::dtype::Dtype;

/// How many numbers are turned at a time.
const BLOCK: usize = 1024;

/// Turns little-endian numbers of `dtype` into 32-bit floats, or answers that this type is not known.
pub(crate) fn to_f32(dtype: Dtype, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    match dtype {
        Dtype::F32 => out.extend_from_slice(bytes),
        Dtype::F16 => each(bytes, out, |n| f16::from_le_bytes(n).to_f32()),
        Dtype::Bf16 => each(bytes, out, |n| bf16::from_le_bytes(n).to_f32()),
        Dtype::F64 => each(bytes, out, |n| f64::from_le_bytes(n) as f32),
        Dtype::Bool => each(bytes, out, |[n]| f32::from(u8::from(n != 0))),
        Dtype::U8 => each(bytes, out, |[n]| f32::from(n)),
        Dtype::I8 => each(bytes, out, |n| f32::from(i8::from_le_bytes(n))),
        Dtype::I16 => each(bytes, out, |n| f32::from(i16::from_le_bytes(n))),
        Dtype::U16 => each(bytes, out, |n| f32::from(u16::from_le_bytes(n))),
        Dtype::I32 => each(bytes, out, |n| i32::from_le_bytes(n) as f32),
        Dtype::U32 => each(bytes, out, |n| u32::from_le_bytes(n) as f32),
        Dtype::I64 => each(bytes, out, |n| i64::from_le_bytes(n) as f32),
        Dtype::U64 => each(bytes, out, |n| u64::from_le_bytes(n) as f32),
        _ => return None,
    }
    Some(())
}

fn each<const N: usize>(bytes: &[u8], out: &mut Vec<u8>, number: impl Fn([u8; N]) -> f32) {
    let (numbers, _) = bytes.as_chunks::<N>();
    out.extend(numbers.iter().flat_map(|&n| number(n).to_le_bytes()));
}

/// A type of floats that numbers can be turned into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloatType {
    /// IEEE half precision.
    F16,
    /// The upper half of an IEEE single.
    Bf16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
}

impl FloatType {
    /// Every one, the smallest first.
    pub const ALL: [Self; 4] = [Self::F16, Self::Bf16, Self::F32, Self::F64];

    /// The same among all types.
    pub const fn dtype(self) -> Dtype {
        match self {
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::Bf16,
            Self::F32 => Dtype::F32,
            Self::F64 => Dtype::F64,
        }
    }

    /// The one of these that a type is, if it is one.
    pub fn of(dtype: Dtype) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.dtype() == dtype)
    }
}

/// Turns little-endian floats of one type into another, each rounded once to the nearest, halves to
/// the even neighbour. Adds them to `out` and tells how many finite ones became infinite.
pub(crate) fn cast(from: FloatType, to: FloatType, bytes: &[u8], out: &mut Vec<u8>) -> u64 {
    if from == to {
        out.extend_from_slice(bytes);
        return 0;
    }
    let size = from.dtype().size_in_bits() / 8;
    let blocks = bytes.chunks(BLOCK * size);
    blocks
        .map(|block| match (from, to) {
            (FloatType::F64, _) => put_f64(&numbers(block, f64::from_le_bytes), to, out),
            (FloatType::F32, _) => put_f32(&numbers(block, f32::from_le_bytes), to, out),
            (FloatType::F16, _) => put_f32(&halves(block), to, out),
            (FloatType::Bf16, _) => put_f32(
                &numbers(block, |n| bf16::from_le_bytes(n).to_f32()),
                to,
                out,
            ),
        })
        .sum()
}

fn numbers<const N: usize, T>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    let (numbers, _) = bytes.as_chunks::<N>();
    numbers.iter().map(|&n| number(n)).collect()
}

fn halves(bytes: &[u8]) -> Vec<f32> {
    let halves = numbers(bytes, f16::from_le_bytes);
    let mut singles = vec![0.0; halves.len()];
    halves.convert_to_f32_slice(&mut singles);
    singles
}

fn put_f32(from: &[f32], to: FloatType, out: &mut Vec<u8>) -> u64 {
    match to {
        FloatType::F64 => {
            out.extend(from.iter().flat_map(|&n| f64::from(n).to_le_bytes()));
            0
        }
        FloatType::F32 => {
            out.extend(from.iter().flat_map(|n| n.to_le_bytes()));
            0
        }
        FloatType::F16 => {
            let mut halves = vec![f16::ZERO; from.len()];
            halves.convert_from_f32_slice(from);
            out.extend(halves.iter().flat_map(|n| n.to_le_bytes()));
            lost(from, &halves, f16::is_infinite)
        }
        FloatType::Bf16 => {
            let halves: Vec<bf16> = from.iter().map(|&n| bf16::from_f32(n)).collect();
            out.extend(halves.iter().flat_map(|n| n.to_le_bytes()));
            lost(from, &halves, bf16::is_infinite)
        }
    }
}

fn lost<T: Copy>(from: &[f32], to: &[T], is_infinite: impl Fn(T) -> bool) -> u64 {
    let pairs = from.iter().zip(to);
    pairs
        .filter(|&(from, &to)| is_infinite(to) && from.is_finite())
        .count() as u64
}

fn put_f64(from: &[f64], to: FloatType, out: &mut Vec<u8>) -> u64 {
    if to == FloatType::F64 {
        out.extend(from.iter().flat_map(|n| n.to_le_bytes()));
        return 0;
    }
    let singles: Vec<f32> = from
        .iter()
        .map(|&n| match to {
            FloatType::F32 => n as f32,
            _ => to_odd(n),
        })
        .collect();
    let lost_here = |(from, to): (&f64, &f32)| from.is_finite() && to.is_infinite();
    let lost = from.iter().zip(&singles).filter(|&pair| lost_here(pair));
    lost.count() as u64 + put_f32(&singles, to, out)
}

/// A single that a second rounding to at most 22 bits turns into what one rounding of `number`
/// would give: cut off, with the last bit set where something was cut off.
fn to_odd(number: f64) -> f32 {
    let nearest = number as f32;
    if f64::from(nearest) == number || number.is_nan() || number.is_infinite() {
        return nearest;
    }
    let bits = nearest.to_bits();
    let cut = if f64::from(nearest).abs() > number.abs() {
        bits - 1
    } else {
        bits
    };
    f32::from_bits(cut | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cast_one(number: f64, to: FloatType) -> (Vec<u8>, u64) {
        let mut out = Vec::new();
        let lost = cast(FloatType::F64, to, &number.to_le_bytes(), &mut out);
        (out, lost)
    }

    /// The nearest of all numbers of a type, found by trying each; halves to the even one.
    fn nearest(number: f64, value: impl Fn(u16) -> f64) -> u16 {
        let sign = if number.is_sign_negative() { 0x8000 } else { 0 };
        let mut best = (f64::INFINITY, 0u16);
        for bits in 0..0x7fff_u16 {
            let candidate = value(bits);
            if !candidate.is_finite() {
                break;
            }
            let distance = (candidate - number.abs()).abs();
            if distance < best.0 || (distance == best.0 && bits % 2 == 0) {
                best = (distance, bits);
            }
        }
        best.1 | sign
    }

    #[test]
    fn doubles_are_rounded_once() {
        // Just above and below the middle of two halves, where rounding to a single first gives
        // that middle.
        let tiny = 2f64.powi(-40);
        let middle16 = 1.0 + 2f64.powi(-11);
        let middle_bf = 1.0 + 2f64.powi(-8);
        for base in [
            middle16,
            middle_bf,
            3.0 * middle16,
            2f64.powi(-24) * 1.5,
            0.1,
            65503.9,
            1e-7,
        ] {
            for number in [
                base,
                base * (1.0 + tiny),
                base * (1.0 - tiny),
                -base * (1.0 + tiny),
            ] {
                let half = |bits| f16::from_bits(bits).to_f64();
                let wanted = nearest(number, half).to_le_bytes().to_vec();
                assert_eq!(cast_one(number, FloatType::F16), (wanted, 0), "{number:e}");
                let upper = |bits| bf16::from_bits(bits).to_f64();
                let wanted = nearest(number, upper).to_le_bytes().to_vec();
                assert_eq!(cast_one(number, FloatType::Bf16), (wanted, 0), "{number:e}");
            }
        }
        let twice = bf16::from_f32((middle_bf * (1.0 + tiny)) as f32);
        let once = cast_one(middle_bf * (1.0 + tiny), FloatType::Bf16).0;
        assert_ne!(
            twice.to_le_bytes().to_vec(),
            once,
            "two roundings differ here"
        );
    }

    #[test]
    fn what_is_beyond_a_type_is_counted() {
        let f32s = |numbers: &[f32]| {
            numbers
                .iter()
                .flat_map(|n| n.to_le_bytes())
                .collect::<Vec<u8>>()
        };
        let bytes = f32s(&[65504.0, 65520.0, -1e9, f32::INFINITY, f32::NAN, 0.0]);
        let mut out = Vec::new();
        assert_eq!(cast(FloatType::F32, FloatType::F16, &bytes, &mut out), 2);
        let found = numbers(&out, f16::from_le_bytes);
        assert_eq!(found[0].to_f32(), 65504.0);
        assert_eq!(found[1], f16::INFINITY);
        assert_eq!(found[2], f16::NEG_INFINITY);
        assert_eq!(found[3], f16::INFINITY);
        assert!(found[4].is_nan());
        assert_eq!(cast_one(1e300, FloatType::F32).1, 1);
        assert_eq!(cast_one(f64::MIN, FloatType::Bf16).1, 1);
        assert_eq!(cast_one(f64::from(f32::MAX) * 1.1, FloatType::F16).1, 1);
        assert_eq!(cast_one(f64::NEG_INFINITY, FloatType::F16).1, 0);
    }

    #[test]
    fn widening_and_narrowing_again_changes_nothing() {
        let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        for narrow in [FloatType::F16, FloatType::Bf16] {
            for wide in [FloatType::F32, FloatType::F64] {
                let (mut widened, mut again) = (Vec::new(), Vec::new());
                assert_eq!(cast(narrow, wide, &all, &mut widened), 0);
                assert_eq!(cast(wide, narrow, &widened, &mut again), 0);
                let kept = all.chunks(2).zip(again.chunks(2)).all(|(old, new)| {
                    let value = |n: &[u8]| match narrow {
                        FloatType::F16 => f16::from_le_bytes([n[0], n[1]]).to_f32(),
                        _ => bf16::from_le_bytes([n[0], n[1]]).to_f32(),
                    };
                    old == new || (value(old).is_nan() && value(new).is_nan())
                });
                assert!(kept, "{narrow:?} {wide:?}");
            }
        }
    }
}
