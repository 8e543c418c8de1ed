//! How fast each pair of dimensions turns.

use std::f64::consts::TAU;

use tch::{Device, Kind, Tensor};

use super::{RotaryScaling, RotarySettings};
use crate::Result;

impl RotarySettings {
    /// One over the wavelength of each pair of dimensions, in float32 on the CPU, for sequences
    /// of `longest` tokens.
    pub(super) fn frequencies(&self, longest: i64) -> Result<Tensor> {
        let &Self {
            width,
            base,
            max_positions,
            ref scaling,
        } = self;
        let plain = |base: f64| -> Result<Tensor> { Ok(wavelengths(width, base)?.f_reciprocal()?) };
        match *scaling {
            RotaryScaling::None => plain(base),
            RotaryScaling::Linear { factor } => Ok(plain(base)?.f_div_scalar(factor)?),
            RotaryScaling::Dynamic { factor } => {
                let longer = longest.max(max_positions) as f64 / max_positions as f64;
                let wide = width as f64;
                let stretch = (factor * longer - (factor - 1.0)).powf(wide / (wide - 2.0));
                plain(base * stretch)
            }
            RotaryScaling::Yarn(yarn) => yarn.frequencies(width, base),
            RotaryScaling::LongRope(ref long) => long.frequencies(width, base, longest),
            RotaryScaling::Proportional { pairs, factor } => {
                let turning = plain(base)?.f_narrow(0, 0, pairs)?;
                let still = width / 2 - pairs;
                Ok(turning
                    .f_pad([0, still], "constant", 0.0)?
                    .f_div_scalar(factor)?)
            }
            RotaryScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_positions,
            } => llama3(
                &plain(base)?,
                factor,
                (low_freq_factor, high_freq_factor),
                original_max_positions as f64,
            ),
        }
    }
}

/// Slow frequencies divided, fast ones kept, those in between mixed by their wavelength.
fn llama3(plain: &Tensor, factor: f64, (low, high): (f64, f64), original: f64) -> Result<Tensor> {
    let wavelength = plain.f_reciprocal()?.f_mul_scalar(TAU)?;
    let slow = wavelength.f_gt(original / low)?;
    let fast = wavelength.f_lt(original / high)?;
    let divided = plain.f_div_scalar(factor)?;
    let ends = divided.f_where_self(&slow, plain)?;
    // How near to the fast ones, from 0 to 1.
    let near = wavelength
        .f_reciprocal()?
        .f_mul_scalar(original)?
        .f_sub_scalar(low)?
        .f_div_scalar(high - low)?;
    let far = near.f_neg()?.f_add_scalar(1.0)?;
    let between = far
        .f_mul(&ends)?
        .f_div_scalar(factor)?
        .f_add(&near.f_mul(&ends)?)?;
    let outside = slow.f_logical_or(&fast)?;
    Ok(ends.f_where_self(&outside, &between)?)
}

/// `base^(2i / width)` for each pair of dimensions.
pub(super) fn wavelengths(width: i64, base: f64) -> Result<Tensor> {
    let exponents = Tensor::f_arange_start_step(0, width, 2, (Kind::Float, Device::Cpu))?
        .f_div_scalar(width)?;
    Ok(Tensor::f_pow_scalar(base, &exponents)?)
}
