//! Attention with rotary positions.

use accelerate::nn::{
    Attention, Factory, Forward, Linear, Member, MemberMut, Module, ModuleState, rotate,
    scaled_dot_product_attention,
};
use accelerate::{Error, Result};
use tch::Tensor;

use super::DecoderLayerInput;
use crate::pretrained::ConfigChecks;

/// The sizes of a [`RotaryAttention`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttentionSizes {
    pub(crate) width: i64,
    pub(crate) heads: i64,
    /// Heads of keys and values, each shared by `heads / key_heads` heads of queries.
    pub(crate) key_heads: i64,
    pub(crate) head_width: i64,
    pub(crate) bias: bool,
    pub(crate) dropout: f64,
}

/// Whether the heads share what there is evenly; `own_width` says that each has a width of its own.
pub(crate) fn check_heads(
    checks: ConfigChecks,
    sizes: &AttentionSizes,
    own_width: bool,
) -> crate::Result<()> {
    let heads = ("num_attention_heads", sizes.heads);
    if !own_width {
        checks.divides(heads, ("hidden_size", sizes.width))?;
    }
    checks.divides(("num_key_value_heads", sizes.key_heads), heads)
}

/// Causal attention whose queries and keys are turned by their positions; several heads of
/// queries may share one of keys and values.
///
/// # Shapes
/// `[rows, new, hidden_size]` in and out.
///
/// # Source
/// `LlamaAttention` and `MixtralAttention` of `transformers`, on the path `sdpa`; the class name
/// is that of the model.
#[derive(Debug, Clone)]
pub struct RotaryAttention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    /// The probability to drop an attention weight while training.
    dropout: f64,
    head_width: i64,
    class: &'static str,
    state: ModuleState,
}

impl RotaryAttention {
    pub(crate) fn new(
        class: &'static str,
        sizes: AttentionSizes,
        factory: &Factory,
    ) -> Result<Self> {
        let AttentionSizes {
            width, head_width, ..
        } = sizes;
        let linear = |inputs, outputs| {
            if sizes.bias {
                Linear::new(inputs, outputs, factory)
            } else {
                Linear::without_bias(inputs, outputs, factory)
            }
        };
        Ok(Self {
            q_proj: linear(width, sizes.heads * head_width)?,
            k_proj: linear(width, sizes.key_heads * head_width)?,
            v_proj: linear(width, sizes.key_heads * head_width)?,
            o_proj: linear(sizes.heads * head_width, width)?,
            dropout: sizes.dropout,
            head_width,
            class,
            state: ModuleState::default(),
        })
    }

    /// `[rows, tokens, heads * width]` to `[rows, heads, tokens, width]`.
    fn heads(&self, projected: &Tensor) -> Result<Tensor> {
        let (rows, tokens, _) = projected.size3()?;
        Ok(projected
            .f_view([rows, tokens, -1, self.head_width])?
            .f_transpose(1, 2)?)
    }
}

impl Module for RotaryAttention {
    fn class_name(&self) -> &'static str {
        self.class
    }

    fn state(&self) -> Option<&ModuleState> {
        Some(&self.state)
    }

    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        visit("q_proj", Member::Module(&self.q_proj));
        visit("k_proj", Member::Module(&self.k_proj));
        visit("v_proj", Member::Module(&self.v_proj));
        visit("o_proj", Member::Module(&self.o_proj));
    }

    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        visit("q_proj", MemberMut::Module(&mut self.q_proj));
        visit("k_proj", MemberMut::Module(&mut self.k_proj));
        visit("v_proj", MemberMut::Module(&mut self.v_proj));
        visit("o_proj", MemberMut::Module(&mut self.o_proj));
    }
}

impl Forward for RotaryAttention {
    type Input = DecoderLayerInput;
    type Output = Tensor;

    fn forward(&self, input: DecoderLayerInput) -> Result<Tensor> {
        let DecoderLayerInput {
            hidden,
            mask,
            angles,
            cache,
        } = input;
        let Some((cosines, sines)) = angles else {
            return Err(Error::Argument {
                operation: "RotaryAttention",
                expected: "the angles of the positions".to_owned(),
                found: "none".to_owned(),
            });
        };
        let query = self.heads(&self.q_proj.call(&hidden)?)?;
        let key = self.heads(&self.k_proj.call(&hidden)?)?;
        let value = self.heads(&self.v_proj.call(&hidden)?)?;
        let query = rotate(&query, &cosines, &sines)?;
        let key = rotate(&key, &cosines, &sines)?;
        let (key, value) = match cache {
            Some(cache) => cache.append(&key, &value)?,
            None => (key, value),
        };
        let settings = Attention {
            dropout: self.active_dropout(),
            causal: mask.causal,
            scale: Some((self.head_width as f64).powf(-0.5)),
        };
        let mixed =
            scaled_dot_product_attention(&query, &key, &value, mask.mask.as_ref(), &settings)?;
        self.o_proj.call(joined_heads(&mixed)?)
    }
}

impl RotaryAttention {
    fn active_dropout(&self) -> f64 {
        if self.state.is_training() {
            self.dropout
        } else {
            0.0
        }
    }
}

/// `[rows, heads, tokens, width]` to `[rows, tokens, heads * width]`.
pub(crate) fn joined_heads(mixed: &Tensor) -> Result<Tensor> {
    let (rows, _, tokens, _) = mixed.size4()?;
    Ok(mixed
        .f_transpose(1, 2)?
        .f_contiguous()?
        .f_reshape([rows, tokens, -1])?)
}
