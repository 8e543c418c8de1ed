//! Rotary position embedding.

mod frequencies;
mod scaling;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::rc::Rc;

use accelerate_torch::meta;
use tch::{Device, Kind, Tensor};

pub use self::scaling::{LongRopeScaling, RotaryScaling, YarnScaling};

use super::{Buffer, Forward, Member, MemberMut, Module, ModuleState};
use crate::{Error, Result};

/// The sizes of a [`RotaryEmbedding`].
#[derive(Debug, Clone, PartialEq)]
pub struct RotarySettings {
    /// How many dimensions of an attention head are turned, from the first on; even. All of them
    /// in most models.
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
/// `yarn`, `longrope`, `llama3` and `proportional`. As there, `dynamic` scaling remembers the longest
/// sequence until one comes that needs no scaling, and `longrope` looks at the last position of
/// each call: keys that a cache got from a short sequence stay as they are.
#[derive(Debug, Clone)]
pub struct RotaryEmbedding {
    frequencies: Buffer,
    settings: RotarySettings,
    attention_factor: f64,
    /// The sequence that the frequencies are made for.
    longest: Rc<Cell<i64>>,
    class: &'static str,
    state: ModuleState,
}

impl RotaryEmbedding {
    /// An embedding on `device`.
    ///
    /// # Errors
    /// [`Error::Argument`] if the width is odd or below 2, the base is not above 1, or the scaling
    /// has numbers for another width.
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
        settings.check_scaling()?;
        let attention_factor = match &settings.scaling {
            RotaryScaling::Yarn(yarn) => yarn.attention_factor(),
            RotaryScaling::LongRope(long) => long.attention_factor(),
            _ => 1.0,
        };
        let max_positions = settings.max_positions;
        let longest = match &settings.scaling {
            RotaryScaling::LongRope(long) => long.original_max_positions,
            _ => max_positions,
        };
        let first = settings.frequencies(longest)?;
        Ok(Self {
            frequencies: Buffer::non_persistent(first.f_to_device(device)?),
            settings,
            attention_factor,
            longest: Rc::new(Cell::new(longest)),
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
        let depends = matches!(
            self.settings.scaling,
            RotaryScaling::Dynamic { .. } | RotaryScaling::LongRope(_)
        );
        // Without values there is no longest position.
        if !depends || positions.numel() == 0 || meta::is_meta(positions)? {
            return Ok(());
        }
        let needed = positions.f_max()?.f_int64_value(&[])? + 1;
        let before = self.longest.get();
        let now = self.settings.made_for(needed, before);
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
    /// The sequence that frequencies are to be made for where one of `needed` tokens comes after
    /// they were made for `before`.
    fn made_for(&self, needed: i64, before: i64) -> i64 {
        let original = self.max_positions;
        match &self.scaling {
            RotaryScaling::LongRope(long) if long.is_long(needed) == long.is_long(before) => before,
            RotaryScaling::LongRope(_) => needed,
            _ if needed > before => needed,
            _ if needed < original => original,
            _ => before,
        }
    }

    fn check_scaling(&self) -> Result<()> {
        let pairs = self.width / 2;
        let refused = |expected: String, found: String| Error::Argument {
            operation: "RotaryEmbedding::new",
            expected,
            found,
        };
        match &self.scaling {
            RotaryScaling::LongRope(long) => {
                let lengths = [&long.short_factor, &long.long_factor].map(Vec::len);
                if lengths.iter().any(|&length| length as i64 != pairs) {
                    let expected = format!("{pairs} short and long factors, one for each angle");
                    return Err(refused(expected, format!("{lengths:?}")));
                }
                Ok(())
            }
            RotaryScaling::Proportional { pairs: turning, .. }
                if !(0..=pairs).contains(turning) =>
            {
                let expected = format!("at most {pairs} pairs of dimensions that turn");
                Err(refused(expected, turning.to_string()))
            }
            _ => Ok(()),
        }
    }
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

/// Turns each pair of dimensions `(i, i + turned / 2)` by its angle; dimensions behind the first
/// `turned` pass as they are.
///
/// # Shapes
/// - `states`: queries or keys, `[rows, heads, tokens, width]`; the output is alike
/// - `cosines`, `sines`: `[rows, tokens, turned]`, as [`RotaryEmbedding`] gives them, with at most
///   `width` numbers
///
/// # Errors
/// If the shapes do not fit.
///
/// # Source
/// `apply_rotary_pos_emb` of `transformers`, for one tensor at a time, as Phi-3 has it: there the
/// angles may be fewer than the head is wide.
pub fn rotate(states: &Tensor, cosines: &Tensor, sines: &Tensor) -> Result<Tensor> {
    let last = |tensor: &Tensor| tensor.size().last().copied().unwrap_or(0);
    let (width, turned) = (last(states), last(cosines));
    let (cosines, sines) = (cosines.f_unsqueeze(1)?, sines.f_unsqueeze(1)?);
    if turned >= width {
        return turn(states, &cosines, &sines);
    }
    let first = turn(&states.f_narrow(-1, 0, turned)?, &cosines, &sines)?;
    let rest = states.f_narrow(-1, turned, width - turned)?;
    Ok(Tensor::f_cat(&[&first, &rest], -1)?)
}

fn turn(states: &Tensor, cosines: &Tensor, sines: &Tensor) -> Result<Tensor> {
    let width = states.size().last().copied().unwrap_or(0);
    let half = width / 2;
    let first = states.f_narrow(-1, 0, half)?;
    let second = states.f_narrow(-1, half, width - half)?;
    let turned = Tensor::f_cat(&[&second.f_neg()?, &first], -1)?;
    Ok(states.f_mul(cosines)?.f_add(&turned.f_mul(sines)?)?)
}
