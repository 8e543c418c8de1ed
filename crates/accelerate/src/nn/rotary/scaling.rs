//! How the angles of rotary positions are stretched.

use std::f64::consts::TAU;

use tch::{Device, Kind, Tensor};

use super::frequencies::wavelengths;
use crate::Result;

/// How the angles of a rotary embedding are stretched for sequences longer than those that the
/// model was first trained on.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub enum RotaryScaling {
    /// Not at all: `default`.
    #[default]
    None,
    /// All angles divided by one factor: `linear`.
    Linear {
        /// What they are divided with.
        factor: f64,
    },
    /// A larger base once a sequence is longer than the model's positions: `dynamic`.
    Dynamic {
        /// How far it is stretched.
        factor: f64,
    },
    /// Slow angles divided, fast ones kept, a ramp in between: `yarn`.
    Yarn(YarnScaling),
    /// Each angle divided by a number of its own, of which there is one set for short sequences
    /// and one for long ones: `longrope`.
    LongRope(LongRopeScaling),
    /// The first angles, as slow as those of a whole head, and no turning for the others:
    /// `proportional`.
    Proportional {
        /// How many pairs of dimensions turn.
        pairs: i64,
        /// What the angles are divided with.
        factor: f64,
    },
    /// The same with a ramp over wavelengths, as Llama 3.1 has it: `llama3`.
    Llama3 {
        /// What slow angles are divided with.
        factor: f64,
        /// Wavelengths above the original positions by this count as slow.
        low_freq_factor: f64,
        /// Wavelengths below the original positions by this count as fast.
        high_freq_factor: f64,
        /// The longest sequence the model was first trained on.
        original_max_positions: i64,
    },
}

/// The settings of [`RotaryScaling::Yarn`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct YarnScaling {
    /// What slow angles are divided with.
    pub factor: f64,
    /// What cosines and sines are multiplied with; found from `factor` where absent.
    pub attention_factor: Option<f64>,
    /// So many turns within the original positions count as fast.
    pub beta_fast: f64,
    /// So many turns within the original positions count as slow.
    pub beta_slow: f64,
    /// Two scales whose quotient gives the attention factor, where it is absent.
    pub mscale: Option<(f64, f64)>,
    /// The longest sequence the model was first trained on.
    pub original_max_positions: i64,
    /// Whether the ramp begins and ends at whole dimensions.
    pub truncate: bool,
}

impl YarnScaling {
    /// The usual settings for a factor.
    pub fn new(factor: f64, original_max_positions: i64) -> Self {
        Self {
            factor,
            attention_factor: None,
            beta_fast: 32.0,
            beta_slow: 1.0,
            mscale: None,
            original_max_positions,
            truncate: true,
        }
    }

    pub(super) fn attention_factor(&self) -> f64 {
        let scale = |by: f64| match self.factor {
            factor if factor <= 1.0 => 1.0,
            factor => 0.1 * by * factor.ln() + 1.0,
        };
        self.attention_factor.unwrap_or_else(|| match self.mscale {
            Some((one, all)) if one != 0.0 && all != 0.0 => scale(one) / scale(all),
            _ => scale(1.0),
        })
    }

    /// The dimension that makes so many turns within the original positions.
    fn dimension(&self, turns: f64, width: f64, base: f64) -> f64 {
        width * (self.original_max_positions as f64 / (turns * TAU)).ln() / (2.0 * base.ln())
    }

    pub(super) fn frequencies(&self, width: i64, base: f64) -> Result<Tensor> {
        let wide = width as f64;
        let (low, high) = (
            self.dimension(self.beta_fast, wide, base),
            self.dimension(self.beta_slow, wide, base),
        );
        let (low, high) = if self.truncate {
            (low.floor(), high.ceil())
        } else {
            (low, high)
        };
        let (low, mut high) = (low.max(0.0), high.min(wide - 1.0));
        if low == high {
            high += 0.001;
        }
        let ramp = Tensor::f_arange(width / 2, (Kind::Float, Device::Cpu))?
            .f_sub_scalar(low)?
            .f_div_scalar(high - low)?
            .f_clamp(0.0, 1.0)?;
        // 1 where an angle is fast and kept.
        let kept = ramp.f_neg()?.f_add_scalar(1.0)?;
        let wavelengths = wavelengths(width, base)?;
        let fast = wavelengths.f_reciprocal()?;
        let slow = wavelengths.f_mul_scalar(self.factor)?.f_reciprocal()?;
        let other = kept.f_neg()?.f_add_scalar(1.0)?;
        Ok(slow.f_mul(&other)?.f_add(&fast.f_mul(&kept)?)?)
    }
}

/// The settings of [`RotaryScaling::LongRope`].
#[derive(Debug, Clone, PartialEq)]
pub struct LongRopeScaling {
    /// What each pair of dimensions is divided with for sequences of at most the original
    /// positions: `width / 2` numbers.
    pub short_factor: Vec<f64>,
    /// The same for longer sequences.
    pub long_factor: Vec<f64>,
    /// How far the longest sequence is beyond the original positions; gives the attention factor
    /// where that is absent.
    pub factor: f64,
    /// What cosines and sines are multiplied with.
    pub attention_factor: Option<f64>,
    /// The longest sequence the model was first trained on.
    pub original_max_positions: i64,
}

impl LongRopeScaling {
    pub(super) fn attention_factor(&self) -> f64 {
        let found = || match self.factor {
            factor if factor <= 1.0 => 1.0,
            factor => (1.0 + factor.ln() / (self.original_max_positions as f64).ln()).sqrt(),
        };
        self.attention_factor.unwrap_or_else(found)
    }

    /// Whether a sequence of so many tokens takes the factors for long ones.
    pub(super) fn is_long(&self, tokens: i64) -> bool {
        tokens > self.original_max_positions
    }

    pub(super) fn frequencies(&self, width: i64, base: f64, tokens: i64) -> Result<Tensor> {
        let factors = if self.is_long(tokens) {
            &self.long_factor
        } else {
            &self.short_factor
        };
        let factors: Vec<f32> = factors.iter().map(|&factor| factor as f32).collect();
        Ok(Tensor::f_from_slice(&factors)?
            .f_mul(&wavelengths(width, base)?)?
            .f_reciprocal()?)
    }
}
