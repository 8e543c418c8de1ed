//! Rotary position embedding.

use std::cell::Cell;
use std::f64::consts::TAU;
use std::rc::Rc;

use tch::{Device, Kind, Tensor};

use super::{Buffer, Forward, Member, MemberMut, Module, ModuleState};
use crate::{Error, Result};

/// How the angles of a rotary embedding are stretched for sequences longer than those that the
/// model was first trained on.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
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

    fn attention_factor(&self) -> f64 {
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

    fn frequencies(&self, width: i64, base: f64) -> Result<Tensor> {
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

/// The sizes of a [`RotaryEmbedding`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RotarySettings {
    /// The width of an attention head; even.
    pub width: i64,
    /// The base of the wavelengths, `rope_theta` in configurations.
    pub base: f64,
    /// The longest sequence of the model, in tokens.
    pub max_positions: i64,
    /// How angles are stretched.
    pub scaling: RotaryScaling,
}

/// Cosines and sines of the angles by which [`rotate`] turns queries and keys.
///
/// # Shapes
/// - input: a tensor that gives type and device, and positions `[rows, tokens]` of int64
/// - output: cosines and sines, each `[rows, tokens, width]`
///
/// # Source
/// `LlamaRotaryEmbedding` of `transformers` with the scalings `default`, `linear`, `dynamic`,
/// `yarn` and `llama3`. As there, `dynamic` scaling remembers the longest sequence until one comes
/// that needs no scaling.
#[derive(Debug, Clone)]
pub struct RotaryEmbedding {
    frequencies: Buffer,
    settings: RotarySettings,
    attention_factor: f64,
    /// The sequence that the frequencies are made for; it only grows with dynamic scaling.
    longest: Rc<Cell<i64>>,
    class: &'static str,
    state: ModuleState,
}

impl RotaryEmbedding {
    /// An embedding on `device`.
    ///
    /// # Errors
    /// [`Error::Argument`] if the width is odd or below 2, or the base is not above 1.
    pub fn new(settings: RotarySettings, device: Device) -> Result<Self> {
        let RotarySettings { width, base, .. } = settings;
        if width < 2
            || width % 2 != 0
            || base.partial_cmp(&1.0) != Some(std::cmp::Ordering::Greater)
        {
            return Err(Error::Argument {
                operation: "RotaryEmbedding::new",
                expected: "an even width of at least 2 and a base above 1".to_owned(),
                found: format!("the width {width} and the base {base}"),
            });
        }
        let attention_factor = match &settings.scaling {
            RotaryScaling::Yarn(yarn) => yarn.attention_factor(),
            _ => 1.0,
        };
        let first = settings.frequencies(settings.max_positions)?;
        Ok(Self {
            frequencies: Buffer::non_persistent(first.f_to_device(device)?),
            settings,
            attention_factor,
            longest: Rc::new(Cell::new(settings.max_positions)),
            class: "RotaryEmbedding",
            state: ModuleState::default(),
        })
    }

    /// The same layer under the class name that a model has for it, such as
    /// `LlamaRotaryEmbedding`.
    #[must_use]
    pub fn with_class_name(self, class: &'static str) -> Self {
        Self { class, ..self }
    }

    /// Makes the frequencies fit positions, where the scaling depends on them.
    fn stretch(&self, positions: &Tensor) -> Result<()> {
        if !matches!(self.settings.scaling, RotaryScaling::Dynamic { .. }) || positions.numel() == 0
        {
            return Ok(());
        }
        let needed = positions.f_max()?.f_int64_value(&[])? + 1;
        let (original, before) = (self.settings.max_positions, self.longest.get());
        let now = match needed {
            needed if needed > before => needed,
            needed if needed < original => original,
            _ => before,
        };
        if now == before {
            return Ok(());
        }
        let fresh = self.settings.frequencies(now)?;
        tch::no_grad(|| self.frequencies.tensor().shallow_clone().f_copy_(&fresh))?;
        self.longest.set(now);
        Ok(())
    }
}

impl RotarySettings {
    /// One over the wavelength of each pair of dimensions, in float32 on the CPU, for sequences
    /// of `longest` tokens.
    fn frequencies(&self, longest: i64) -> Result<Tensor> {
        let &Self {
            width,
            base,
            max_positions,
            ref scaling,
        } = self;
        let plain = |base| -> Result<Tensor> { Ok(wavelengths(width, base)?.f_reciprocal()?) };
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
            RotaryScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_positions,
            } => {
                let plain = plain(base)?;
                let original = original_max_positions as f64;
                let wavelength = plain.f_reciprocal()?.f_mul_scalar(TAU)?;
                let slow = wavelength.f_gt(original / low_freq_factor)?;
                let fast = wavelength.f_lt(original / high_freq_factor)?;
                let divided = plain.f_div_scalar(factor)?;
                let ends = divided.f_where_self(&slow, &plain)?;
                // How near to the fast ones, from 0 to 1.
                let near = wavelength
                    .f_reciprocal()?
                    .f_mul_scalar(original)?
                    .f_sub_scalar(low_freq_factor)?
                    .f_div_scalar(high_freq_factor - low_freq_factor)?;
                let far = near.f_neg()?.f_add_scalar(1.0)?;
                let between = far
                    .f_mul(&ends)?
                    .f_div_scalar(factor)?
                    .f_add(&near.f_mul(&ends)?)?;
                let outside = slow.f_logical_or(&fast)?;
                Ok(ends.f_where_self(&outside, &between)?)
            }
        }
    }
}

/// `base^(2i / width)` for each pair of dimensions.
fn wavelengths(width: i64, base: f64) -> Result<Tensor> {
    let exponents = Tensor::f_arange_start_step(0, width, 2, (Kind::Float, Device::Cpu))?
        .f_div_scalar(width)?;
    Ok(Tensor::f_pow_scalar(base, &exponents)?)
}

impl Module for RotaryEmbedding {
    fn class_name(&self) -> &'static str {
        self.class
    }

    fn state(&self) -> Option<&ModuleState> {
        Some(&self.state)
    }

    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        visit("inv_freq", Member::Buffer(&self.frequencies));
    }

    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        visit("inv_freq", MemberMut::Buffer(&mut self.frequencies));
    }
}

impl Forward for RotaryEmbedding {
    type Input = (Tensor, Tensor);
    type Output = (Tensor, Tensor);

    fn forward(&self, (hidden, positions): Self::Input) -> Result<(Tensor, Tensor)> {
        self.stretch(&positions)?;
        let kind = hidden.f_kind()?;
        // Float32 under any precision: a bfloat16 tells no long positions apart.
        let frequencies = self.frequencies.tensor().f_to_kind(Kind::Float)?;
        let angles = positions
            .f_unsqueeze(-1)?
            .f_to_kind(Kind::Float)?
            .f_mul(&frequencies)?;
        let angles = Tensor::f_cat(&[&angles, &angles], -1)?;
        let finish = |values: Tensor| -> Result<Tensor> {
            let scaled = if self.attention_factor == 1.0 {
                values
            } else {
                values.f_mul_scalar(self.attention_factor)?
            };
            Ok(scaled.f_to_kind(kind)?)
        };
        Ok((finish(angles.f_cos()?)?, finish(angles.f_sin()?)?))
    }
}

/// Turns each pair of dimensions `(i, i + width / 2)` by its angle.
///
/// # Shapes
/// - `states`: queries or keys, `[rows, heads, tokens, width]`; the output is alike
/// - `cosines`, `sines`: `[rows, tokens, width]`, as [`RotaryEmbedding`] gives them
///
/// # Errors
/// If the shapes do not fit.
///
/// # Source
/// `apply_rotary_pos_emb` of `transformers`, for one tensor at a time.
pub fn rotate(states: &Tensor, cosines: &Tensor, sines: &Tensor) -> Result<Tensor> {
    let (cosines, sines) = (cosines.f_unsqueeze(1)?, sines.f_unsqueeze(1)?);
    let width = states.size().last().copied().unwrap_or(0);
    let half = width / 2;
    let first = states.f_narrow(-1, 0, half)?;
    let second = states.f_narrow(-1, half, width - half)?;
    let turned = Tensor::f_cat(&[&second.f_neg()?, &first], -1)?;
    Ok(states.f_mul(&cosines)?.f_add(&turned.f_mul(&sines)?)?)
}
