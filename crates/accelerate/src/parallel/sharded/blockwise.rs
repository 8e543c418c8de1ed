//! Numbers as small integers, with a scale for each block of them.

use accelerate_plan::parallel::Quantised;
use tch::{Kind, Tensor};

use super::flat::length;
use crate::Result;

/// Numbers that share a scale. The smaller, the closer; a scale takes four bytes.
const BLOCK: i64 = 1024;
/// Bytes of a scale.
const SCALE: i64 = 4;

/// Of how many bits the integers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blockwise {
    Int8,
    Int4,
}

impl Blockwise {
    /// The code that a plan asks for, for numbers of a type that can be scaled.
    pub(super) fn of(quantised: Quantised, kind: Kind) -> Option<Self> {
        let is_float = matches!(
            kind,
            Kind::Float | Kind::Half | Kind::BFloat16 | Kind::Double
        );
        match quantised {
            Quantised::Int8 if is_float => Some(Self::Int8),
            Quantised::Int4 if is_float => Some(Self::Int4),
            _ => None,
        }
    }

    /// How many bytes `count` numbers take.
    pub(super) fn bytes(self, count: usize) -> usize {
        let block = usize::try_from(BLOCK).unwrap_or(usize::MAX);
        let bytes = usize::try_from(self.payload() + SCALE).unwrap_or(usize::MAX);
        count.div_ceil(block) * bytes
    }

    /// Bytes of a block without its scale.
    fn payload(self) -> i64 {
        match self {
            Self::Int8 => BLOCK,
            Self::Int4 => BLOCK / 2,
        }
    }

    /// One more than the largest integer.
    fn levels(self) -> i64 {
        match self {
            Self::Int8 => 128,
            Self::Int4 => 8,
        }
    }

    /// Rows of numbers as rows of bytes.
    ///
    /// A block's scale is its largest absolute value divided by 128, or 8; numbers are rounded to
    /// multiples of it. So no number moves by more than that. What is not finite makes its block so.
    ///
    /// # Shapes
    /// - numbers: `[rows, count]`
    /// - output: `[rows, bytes]` of kind `Uint8`
    ///
    /// # Source
    /// The symmetric quantisation of DeepSpeed's ZeRO++. Differs: blocks are of 1024 numbers, whatever
    /// the size of a parameter.
    pub(super) fn encode(self, numbers: &Tensor) -> Result<Tensor> {
        tch::no_grad(|| {
            let size = numbers.size();
            let (rows, count) = (
                size.first().copied().unwrap_or(0),
                size.get(1).copied().unwrap_or(0),
            );
            let blocks = (count + BLOCK - 1).div_euclid(BLOCK);
            let mut numbers = numbers.f_to_kind(Kind::Float)?;
            if blocks * BLOCK > count {
                numbers = numbers.f_constant_pad_nd([0, blocks * BLOCK - count])?;
            }
            let numbers = numbers.f_reshape([rows * blocks, BLOCK])?;
            let levels = self.levels();
            let scale = numbers.f_abs()?.f_amax([1i64], true)?;
            let scale = scale.f_div_scalar(levels)?;
            let ones = scale.f_ones_like()?;
            let scale = ones.f_where_self(&scale.f_eq(0.0)?, &scale)?;
            let rounded = numbers
                .f_div(&scale)?
                .f_round()?
                .f_clamp(-levels, levels - 1)?;
            let payload = self.packed(&rounded)?;
            let scale = scale.f_contiguous()?.f_view_dtype(Kind::Uint8)?;
            let all = Tensor::f_cat(&[payload, scale], 1)?;
            Ok(all.f_reshape([rows, -1])?)
        })
    }

    fn packed(self, rounded: &Tensor) -> Result<Tensor> {
        Ok(match self {
            Self::Int8 => rounded.f_to_kind(Kind::Int8)?.f_view_dtype(Kind::Uint8)?,
            Self::Int4 => {
                let halves = rounded
                    .f_add_scalar(self.levels())?
                    .f_to_kind(Kind::Uint8)?;
                let halves = halves.f_reshape([-1, self.payload(), 2])?;
                let high = halves.f_select(2, 1)?.f_mul_scalar(16)?;
                halves.f_select(2, 0)?.f_add(&high)?
            }
        })
    }

    /// The numbers in rows of bytes, rounded.
    ///
    /// # Shapes
    /// - bytes: `[rows, bytes]` of kind `Uint8`
    /// - output: `[rows, count]` of kind `Float`
    pub(super) fn decode(self, bytes: &Tensor, count: usize) -> Result<Tensor> {
        tch::no_grad(|| {
            let rows = bytes.size().first().copied().unwrap_or(0);
            let (payload, count) = (self.payload(), length(count));
            let blocks = bytes.f_reshape([-1, payload + SCALE])?;
            let scale = blocks.f_narrow(1, payload, SCALE)?.f_contiguous()?;
            let scale = scale.f_view_dtype(Kind::Float)?;
            let rounded = self.unpacked(&blocks.f_narrow(1, 0, payload)?)?;
            let numbers = rounded.f_mul(&scale)?.f_reshape([rows, -1])?;
            Ok(numbers.f_narrow(1, 0, count)?)
        })
    }

    fn unpacked(self, payload: &Tensor) -> Result<Tensor> {
        Ok(match self {
            Self::Int8 => payload.f_view_dtype(Kind::Int8)?.f_to_kind(Kind::Float)?,
            Self::Int4 => {
                let low = payload.f_bitwise_and(15)?;
                let high = payload.f_bitwise_right_shift_tensor_scalar(4)?;
                let both = Tensor::f_stack(&[low, high], 2)?.f_reshape([-1, BLOCK])?;
                both.f_to_kind(Kind::Float)?.f_sub_scalar(self.levels())?
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use accelerate_testkit::formula;
    use tch::Device;

    const CODES: [Blockwise; 2] = [Blockwise::Int8, Blockwise::Int4];

    #[test]
    fn no_number_moves_by_more_than_its_blocks_scale() -> Result<()> {
        for count in [1, 64, 1024, 1088, 5000] {
            let numbers = formula(3 * count as usize, 7, 0.0, 1.0);
            let numbers = Tensor::from_slice(&numbers).f_view([3, count])?;
            let numbers = numbers.f_mul(&Tensor::from_slice(&[1f32, 1e-6, 1e4]).f_view([3, 1])?)?;
            for code in CODES {
                let bytes = code.encode(&numbers)?;
                assert_eq!(bytes.size(), [3, length(code.bytes(count as usize))]);
                let found = code.decode(&bytes, count as usize)?;
                assert_eq!(found.size(), numbers.size());
                let apart = found.f_sub(&numbers)?.f_abs()?.f_amax([1i64], false)?;
                let largest = numbers.f_abs()?.f_amax([1i64], false)?;
                let allowed = largest.f_div_scalar(code.levels())?.f_mul_scalar(1.0001)?;
                let is_close = apart.f_le_tensor(&allowed)?.f_all()?;
                assert_eq!(is_close.int64_value(&[]), 1, "{code:?} {count}");
            }
        }
        Ok(())
    }

    #[test]
    fn multiples_of_the_scale_stay_as_they_are() -> Result<()> {
        let numbers = Tensor::from_slice(&[-8f32, -3.0, 0.0, 7.0, 1.0]).f_view([1, 5])?;
        let code = Blockwise::Int4;
        assert_eq!(code.decode(&code.encode(&numbers)?, 5)?, numbers);
        let zeros = Tensor::f_zeros([2, 70], (Kind::Float, Device::Cpu))?;
        for code in CODES {
            assert_eq!(code.decode(&code.encode(&zeros)?, 70)?, zeros);
        }
        Ok(())
    }

    #[test]
    fn what_is_not_finite_is_not_lost() -> Result<()> {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let numbers = Tensor::from_slice(&[1f32, bad, 2.0]).f_view([1, 3])?;
            for code in CODES {
                let found = code.decode(&code.encode(&numbers)?, 3)?;
                let sum = found.f_sum(Kind::Float)?.double_value(&[]);
                assert!(!sum.is_finite(), "{code:?} {bad}");
            }
        }
        Ok(())
    }

    #[test]
    fn eight_bits_take_a_quarter_and_four_an_eighth() {
        assert_eq!(Blockwise::Int8.bytes(10_240), 10 * 1028);
        assert_eq!(Blockwise::Int4.bytes(10_240), 10 * 516);
        assert_eq!(Blockwise::Int4.bytes(0), 0);
    }
}
