//! How far two tensors are apart.

use half::{bf16, f16};

use crate::dtype::Dtype;
use crate::error::Result;
use crate::tensor::{Pieces, TensorBytes};

/// How many numbers are compared at a time.
const BLOCK: usize = 1 << 14;

/// How close two numbers have to be: `|a - b| <= absolute + relative * |b|`. Two NaN are close; an
/// infinity is close to itself only.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// In the unit of the numbers.
    pub absolute: f64,
    /// As a part of the second number.
    pub relative: f64,
}

impl Tolerance {
    fn holds(self, a: f64, b: f64) -> bool {
        a == b
            || (a.is_nan() && b.is_nan())
            || (a.is_finite()
                && b.is_finite()
                && (a - b).abs() <= self.absolute + self.relative * b.abs())
    }
}

/// How the numbers of two tensors of one shape differ.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Comparison {
    /// How many numbers each has; parts of complex numbers count one by one.
    pub elements: u64,
    /// How many are not the same: not the same bits, or, where the types differ, not the same value.
    pub different: u64,
    /// How many are not within the tolerance; as many as [`different`](Self::different) without one.
    pub beyond: u64,
    /// The largest distance of two finite numbers.
    pub max_absolute: f64,
    /// The largest distance of two finite numbers as a part of the larger one.
    pub max_relative: f64,
    /// How many of the first are no number.
    pub first_nan: u64,
    /// How many of the second are no number.
    pub second_nan: u64,
    /// How many pairs differ where one or both are infinite.
    pub infinite: u64,
    /// Whether distances are known. Floats of 8 bits or less are compared by their bits only.
    pub is_measured: bool,
}

/// Compares the data of two tensors of one shape, a block at a time. Without a tolerance, numbers have
/// to be the same.
///
/// # Errors
/// Those of the pieces.
pub fn compare(
    (first_dtype, mut first): (Dtype, Pieces<'_>),
    (second_dtype, mut second): (Dtype, Pieces<'_>),
    tolerance: Option<Tolerance>,
) -> Result<Comparison> {
    let kinds = (Numbers::of(first_dtype), Numbers::of(second_dtype));
    let mut result = Comparison {
        is_measured: kinds.0.is_measured() && kinds.1.is_measured(),
        ..Comparison::default()
    };
    let (mut ours, mut theirs) = (Rest::default(), Rest::default());
    loop {
        ours.fill(&mut first)?;
        theirs.fill(&mut second)?;
        let count = ours
            .count(kinds.0.bytes)
            .min(theirs.count(kinds.1.bytes))
            .min(BLOCK);
        if count == 0 {
            return Ok(result);
        }
        let (one, other) = (
            ours.take(count * kinds.0.bytes),
            theirs.take(count * kinds.1.bytes),
        );
        result.elements += count as u64;
        if first_dtype == second_dtype && one == other {
            let nan = kinds.0.nan(one);
            result.first_nan += nan;
            result.second_nan += nan;
        } else {
            result.add(
                (kinds.0, one),
                (kinds.1, other),
                first_dtype == second_dtype,
                tolerance,
            );
        }
    }
}

impl Comparison {
    fn add(
        &mut self,
        (first, one): (Numbers, &[u8]),
        (second, other): (Numbers, &[u8]),
        same_type: bool,
        tolerance: Option<Tolerance>,
    ) {
        let pairs = one
            .chunks_exact(first.bytes)
            .zip(other.chunks_exact(second.bytes));
        for (one, other) in pairs {
            let same_bits = same_type && one == other;
            let values = first.value(one).zip(second.value(other));
            let Some((a, b)) = values else {
                self.different += u64::from(!same_bits);
                self.beyond += u64::from(!same_bits);
                continue;
            };
            self.first_nan += u64::from(a.is_nan());
            self.second_nan += u64::from(b.is_nan());
            if same_bits {
                continue;
            }
            let same = !same_type && (a == b || (a.is_nan() && b.is_nan()));
            self.different += u64::from(!same);
            let is_close = tolerance.map_or(same, |tolerance| tolerance.holds(a, b));
            self.beyond += u64::from(!is_close);
            if a.is_finite() && b.is_finite() {
                let distance = (a - b).abs();
                self.max_absolute = self.max_absolute.max(distance);
                let larger = a.abs().max(b.abs());
                if larger > 0.0 {
                    self.max_relative = self.max_relative.max(distance / larger);
                }
            } else if a.is_infinite() || b.is_infinite() {
                self.infinite += u64::from(a != b);
            }
        }
    }
}

/// What is left of a piece.
#[derive(Default)]
struct Rest {
    piece: Option<TensorBytes>,
    begin: usize,
}

impl Rest {
    /// Takes the next piece where nothing is left of the last.
    fn fill(&mut self, pieces: &mut Pieces<'_>) -> Result<()> {
        while self
            .piece
            .as_ref()
            .is_none_or(|piece| self.begin >= piece.len())
        {
            self.begin = 0;
            self.piece = pieces.next().transpose()?;
            if self.piece.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn count(&self, bytes: usize) -> usize {
        let left = self
            .piece
            .as_ref()
            .map_or(0, |piece| piece.len() - self.begin);
        left / bytes
    }

    fn take(&mut self, bytes: usize) -> &[u8] {
        let begin = self.begin;
        self.begin += bytes;
        let piece = self.piece.as_ref();
        piece
            .and_then(|piece| piece.get(begin..self.begin))
            .unwrap_or_default()
    }
}

/// How numbers of a type are read; of complex numbers each part.
#[derive(Clone, Copy)]
struct Numbers {
    dtype: Dtype,
    bytes: usize,
}

impl Numbers {
    fn of(dtype: Dtype) -> Self {
        let dtype = match dtype {
            Dtype::C64 => Dtype::F32,
            Dtype::C128 => Dtype::F64,
            other => other,
        };
        Self {
            dtype,
            // Packed floats are compared byte by byte.
            bytes: (dtype.size_in_bits() / 8).max(1),
        }
    }

    fn is_measured(self) -> bool {
        self.value(&[0; 8][..self.bytes.min(8)]).is_some()
    }

    fn value(self, bytes: &[u8]) -> Option<f64> {
        Some(match self.dtype {
            Dtype::F64 => f64::from_le_bytes(bytes.try_into().ok()?),
            Dtype::F32 => f64::from(f32::from_le_bytes(bytes.try_into().ok()?)),
            Dtype::F16 => f16::from_le_bytes(bytes.try_into().ok()?).to_f64(),
            Dtype::Bf16 => bf16::from_le_bytes(bytes.try_into().ok()?).to_f64(),
            Dtype::Bool | Dtype::U8 => f64::from(u8::from_le_bytes(bytes.try_into().ok()?)),
            Dtype::I8 => f64::from(i8::from_le_bytes(bytes.try_into().ok()?)),
            Dtype::I16 => f64::from(i16::from_le_bytes(bytes.try_into().ok()?)),
            Dtype::U16 => f64::from(u16::from_le_bytes(bytes.try_into().ok()?)),
            Dtype::I32 => f64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
            Dtype::U32 => f64::from(u32::from_le_bytes(bytes.try_into().ok()?)),
            Dtype::I64 => i64::from_le_bytes(bytes.try_into().ok()?) as f64,
            Dtype::U64 => u64::from_le_bytes(bytes.try_into().ok()?) as f64,
            _ => return None,
        })
    }

    /// How many of these are no number.
    fn nan(self, bytes: &[u8]) -> u64 {
        fn count<const N: usize>(bytes: &[u8], is_nan: impl Fn([u8; N]) -> bool) -> u64 {
            let (numbers, _) = bytes.as_chunks::<N>();
            numbers.iter().filter(|&&number| is_nan(number)).count() as u64
        }
        match self.dtype {
            Dtype::F64 => count(bytes, |n| f64::from_le_bytes(n).is_nan()),
            Dtype::F32 => count(bytes, |n| f32::from_le_bytes(n).is_nan()),
            Dtype::F16 => count(bytes, |n| f16::from_le_bytes(n).is_nan()),
            Dtype::Bf16 => count(bytes, |n| bf16::from_le_bytes(n).is_nan()),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(parts: &[&[f32]]) -> Pieces<'static> {
        let parts: Vec<TensorBytes> = parts
            .iter()
            .map(|part| {
                let bytes: Vec<u8> = part.iter().flat_map(|n| n.to_le_bytes()).collect();
                bytes.into()
            })
            .collect();
        Box::new(parts.into_iter().map(Ok))
    }

    fn singles(a: &[&[f32]], b: &[&[f32]], tolerance: Option<Tolerance>) -> Comparison {
        let (a, b) = ((Dtype::F32, pieces(a)), (Dtype::F32, pieces(b)));
        compare(a, b, tolerance).unwrap()
    }

    #[test]
    fn pieces_need_not_be_cut_alike() {
        let a: [&[f32]; 3] = [&[1.0, 2.0], &[], &[3.0, 4.0, 5.0]];
        let b: [&[f32]; 2] = [&[1.0, 2.0, 3.5, 4.0], &[5.0]];
        let found = singles(&a, &b, None);
        assert_eq!((found.elements, found.different, found.beyond), (5, 1, 1));
        assert_eq!(found.max_absolute, 0.5);
        assert_eq!(found.max_relative, 0.5 / 3.5);
        assert!(found.is_measured);
    }

    #[test]
    fn tolerances_are_those_of_numpy() {
        let tolerance = |absolute, relative| Some(Tolerance { absolute, relative });
        let (a, b): (&[f32], &[f32]) = (&[1.0, 0.0, 100.0], &[1.5, 0.25, 101.0]);
        let beyond = |tolerance| singles(&[a], &[b], tolerance).beyond;
        assert_eq!(beyond(None), 3);
        assert_eq!(beyond(tolerance(0.5, 0.0)), 1);
        assert_eq!(beyond(tolerance(0.0, 0.01)), 2);
        assert_eq!(beyond(tolerance(0.25, 0.2)), 0);
    }

    #[test]
    fn what_is_no_number_is_counted_on_both_sides() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let other_nan = f32::from_bits(nan.to_bits() ^ 1);
        let a: &[f32] = &[nan, nan, inf, inf, 0.0];
        let b: &[f32] = &[nan, other_nan, inf, 1.0, -0.0];
        let found = singles(&[a], &[b], None);
        assert_eq!((found.first_nan, found.second_nan), (2, 2));
        assert_eq!((found.different, found.infinite), (3, 1), "bits count");
        assert_eq!(found.max_absolute, 0.0);
        let close = Tolerance {
            absolute: 0.0,
            relative: 0.0,
        };
        assert_eq!(singles(&[a], &[b], Some(close)).beyond, 1);
        let relative = Tolerance {
            absolute: 0.0,
            relative: 0.1,
        };
        let (a, b): (&[f32], &[f32]) = (&[1.0, inf, inf, inf], &[inf, 1.0, -inf, inf]);
        assert_eq!(singles(&[a], &[b], Some(relative)).beyond, 3);
    }

    #[test]
    fn other_types_are_compared_by_value() {
        let single: Vec<u8> = [1.5f32, 1e-9, f32::NAN]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        let upper: Vec<u8> = [1.5f32, 0.0, f32::NAN]
            .iter()
            .flat_map(|&n| bf16::from_f32(n).to_le_bytes())
            .collect();
        let one =
            |bytes: Vec<u8>| -> Pieces<'static> { Box::new(std::iter::once(Ok(bytes.into()))) };
        let found = compare((Dtype::F32, one(single)), (Dtype::Bf16, one(upper)), None).unwrap();
        assert_eq!(
            (found.elements, found.different, found.first_nan),
            (3, 1, 1)
        );
        let bits = |n: u8| (Dtype::F8E4m3, one(vec![n, 3]));
        let found = compare(bits(1), bits(2), None).unwrap();
        assert_eq!((found.different, found.is_measured), (1, false));
    }
}
