//! The layers of a stack.

use accelerate::Result;
use accelerate::nn::{Dropout, Factory, Forward, Member, MemberMut, Module, ModuleState};
use accelerate::tree::Tree;
use tch::{Kind, Tensor};

use super::attention::Side;
use super::{T5Attention, T5AttentionInput, T5Config, T5LayerFF, T5LayerNorm};
use crate::generation::LayerCache;

/// Attention of each token to those of its own text, normalised before and added to what came in.
///
/// # Shapes
/// As [`T5Attention`].
#[derive(Debug, Clone, Module)]
#[expect(
    non_snake_case,
    reason = "fields have the names of the public checkpoint"
)]
pub struct T5LayerSelfAttention {
    SelfAttention: T5Attention,
    layer_norm: T5LayerNorm,
    dropout: Dropout,
    state: ModuleState,
}

impl T5LayerSelfAttention {
    fn new(config: &T5Config, side: Side, with_bias: bool, factory: &Factory) -> Result<Self> {
        Ok(Self {
            SelfAttention: T5Attention::new(config, side, with_bias, factory)?,
            layer_norm: T5LayerNorm::new(config.d_model, config.layer_norm_epsilon, factory)?,
            dropout: Dropout::new(config.dropout_rate)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for T5LayerSelfAttention {
    type Input = T5AttentionInput;
    type Output = (Tensor, Option<Tensor>);

    fn forward(&self, input: T5AttentionInput) -> Result<Self::Output> {
        let residual = input.hidden.shallow_clone();
        let hidden = self.layer_norm.call(&residual)?;
        let (mixed, bias) = self
            .SelfAttention
            .call(T5AttentionInput { hidden, ..input })?;
        Ok((residual.f_add(&self.dropout.call(mixed)?)?, bias))
    }
}

/// Attention of each token of the decoder to those of the encoder, normalised before and added to
/// what came in.
///
/// # Shapes
/// As [`T5Attention`].
#[derive(Debug, Clone, Module)]
#[expect(
    non_snake_case,
    reason = "fields have the names of the public checkpoint"
)]
pub struct T5LayerCrossAttention {
    EncDecAttention: T5Attention,
    layer_norm: T5LayerNorm,
    dropout: Dropout,
    state: ModuleState,
}

impl T5LayerCrossAttention {
    fn new(config: &T5Config, factory: &Factory) -> Result<Self> {
        Ok(Self {
            EncDecAttention: T5Attention::new(config, Side::Decoder, false, factory)?,
            layer_norm: T5LayerNorm::new(config.d_model, config.layer_norm_epsilon, factory)?,
            dropout: Dropout::new(config.dropout_rate)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for T5LayerCrossAttention {
    type Input = T5AttentionInput;
    type Output = (Tensor, Option<Tensor>);

    fn forward(&self, input: T5AttentionInput) -> Result<Self::Output> {
        let residual = input.hidden.shallow_clone();
        let hidden = self.layer_norm.call(&residual)?;
        let (mixed, bias) = self
            .EncDecAttention
            .call(T5AttentionInput { hidden, ..input })?;
        Ok((residual.f_add(&self.dropout.call(mixed)?)?, bias))
    }
}

/// The two layers of an encoder's block or the three of a decoder's: a list in the original, with
/// members `0`, `1` and, in a decoder, `2`.
#[derive(Debug, Clone)]
pub struct T5BlockLayers {
    self_attention: T5LayerSelfAttention,
    cross_attention: Option<T5LayerCrossAttention>,
    feed_forward: T5LayerFF,
}

impl Module for T5BlockLayers {
    fn class_name(&self) -> &'static str {
        "ModuleList"
    }

    fn state(&self) -> Option<&ModuleState> {
        None
    }

    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        visit("0", Member::Module(&self.self_attention));
        let last = match &self.cross_attention {
            Some(cross_attention) => {
                visit("1", Member::Module(cross_attention));
                "2"
            }
            None => "1",
        };
        visit(last, Member::Module(&self.feed_forward));
    }

    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        visit("0", MemberMut::Module(&mut self.self_attention));
        let last = match &mut self.cross_attention {
            Some(cross_attention) => {
                visit("1", MemberMut::Module(cross_attention));
                "2"
            }
            None => "1",
        };
        visit(last, MemberMut::Module(&mut self.feed_forward));
    }
}

/// What [`T5Block`] takes.
///
/// # Shapes
/// As those of [`T5AttentionInput`].
#[derive(Debug, Tree)]
pub struct T5BlockInput {
    /// The hidden states.
    pub hidden: Tensor,
    /// Which tokens of its own text a token may look at.
    pub mask: Option<Tensor>,
    /// The joined bias for it, from the first block.
    pub bias: Option<Tensor>,
    /// The encoder's states, for a decoder.
    pub encoder_states: Option<Tensor>,
    /// Which tokens of the encoder a token may look at.
    pub encoder_mask: Option<Tensor>,
    /// The joined bias for it, from the first block.
    pub encoder_bias: Option<Tensor>,
    /// Keys and values of the tokens before.
    pub cache: Option<LayerCache>,
}

/// One block: attention, in a decoder attention to the encoder, then the feed-forward part.
///
/// # Shapes
/// - output: the hidden states `[batch, tokens, d_model]`, and both biases for the next blocks
#[derive(Debug, Clone, Module)]
pub struct T5Block {
    layer: T5BlockLayers,
    state: ModuleState,
}

impl T5Block {
    pub(super) fn new(
        config: &T5Config,
        side: Side,
        with_bias: bool,
        factory: &Factory,
    ) -> Result<Self> {
        Ok(Self {
            layer: T5BlockLayers {
                self_attention: T5LayerSelfAttention::new(config, side, with_bias, factory)?,
                cross_attention: (side == Side::Decoder)
                    .then(|| T5LayerCrossAttention::new(config, factory))
                    .transpose()?,
                feed_forward: T5LayerFF::new(config, factory)?,
            },
            state: ModuleState::default(),
        })
    }
}

impl Forward for T5Block {
    type Input = T5BlockInput;
    type Output = (Tensor, Option<Tensor>, Option<Tensor>);

    fn forward(&self, input: T5BlockInput) -> Result<Self::Output> {
        let (hidden, bias) = self.layer.self_attention.call(T5AttentionInput {
            hidden: input.hidden,
            key_value_states: None,
            mask: input.mask,
            bias: input.bias,
            cache: input.cache.clone(),
        })?;
        let hidden = finite(hidden)?;
        let (hidden, encoder_bias) = match (&self.layer.cross_attention, input.encoder_states) {
            (Some(attention), Some(states)) => {
                let (hidden, bias) = attention.call(T5AttentionInput {
                    hidden,
                    key_value_states: Some(states),
                    mask: input.encoder_mask,
                    bias: input.encoder_bias,
                    cache: input.cache,
                })?;
                (finite(hidden)?, bias)
            }
            _ => (hidden, None),
        };
        let hidden = finite(self.layer.feed_forward.call(hidden)?)?;
        Ok((hidden, bias, encoder_bias))
    }
}

/// In float16, whose range these models can leave: infinite values become large ones.
fn finite(hidden: Tensor) -> Result<Tensor> {
    const LARGEST: f64 = 65504.0;
    if hidden.f_kind()? != Kind::Half {
        return Ok(hidden);
    }
    let any = hidden.f_isinf()?.f_any()?;
    let limit = |value: f64| Tensor::f_full([1], value, (Kind::Half, hidden.device()));
    let most = limit(LARGEST - 1000.0)?.f_where_self(&any, &limit(LARGEST)?)?;
    Ok(hidden.f_clamp_tensor(Some(&most.f_neg()?), Some(&most))?)
}
