//! Attention with a bias for the distance of two tokens.

use accelerate::Result;
use accelerate::nn::{
    Attention, Embedding, Factory, Forward, Linear, Module, ModuleState,
    scaled_dot_product_attention,
};
use accelerate::tree::Tree;
use tch::Tensor;

use super::position::Buckets;
use super::{T5Config, mask};
use crate::generation::LayerCache;

/// Which side of the model an attention is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Encoder,
    Decoder,
}

/// What [`T5Attention`] takes.
#[derive(Debug, Tree)]
pub struct T5AttentionInput {
    /// The hidden states, `[batch, tokens, d_model]`.
    pub hidden: Tensor,
    /// The encoder's states, for attention from the decoder to the encoder.
    pub key_value_states: Option<Tensor>,
    /// True where a query may look at a key; it broadcasts to `[batch, heads, tokens, keys]`. Not
    /// looked at where there is a bias.
    pub mask: Option<Tensor>,
    /// The position bias joined with the mask, from the first layer of the stack.
    pub bias: Option<Tensor>,
    /// Keys and values of the tokens before.
    pub cache: Option<LayerCache>,
}

/// Attention over several heads; scores are not divided by the width.
///
/// # Shapes
/// - output: `[batch, tokens, d_model]`, and the bias for further layers, which broadcasts to
///   `[batch, heads, tokens, keys]`
#[derive(Debug, Clone, Module)]
pub struct T5Attention {
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    relative_attention_bias: Option<Embedding>,
    #[module(skip)]
    buckets: Buckets,
    #[module(skip)]
    head_size: i64,
    #[module(skip)]
    dropout: f64,
    state: ModuleState,
}

impl T5Attention {
    pub(super) fn new(
        config: &T5Config,
        side: Side,
        with_bias: bool,
        factory: &Factory,
    ) -> Result<Self> {
        let (width, inner) = (config.d_model, config.inner_dim());
        let buckets = config.relative_attention_num_buckets;
        Ok(Self {
            q: Linear::without_bias(width, inner, factory)?,
            k: Linear::without_bias(width, inner, factory)?,
            v: Linear::without_bias(width, inner, factory)?,
            o: Linear::without_bias(inner, width, factory)?,
            relative_attention_bias: with_bias
                .then(|| Embedding::new(buckets, config.num_heads, factory))
                .transpose()?,
            buckets: Buckets {
                count: buckets,
                max_distance: config.relative_attention_max_distance,
                bidirectional: side == Side::Encoder,
            },
            head_size: config.d_kv,
            dropout: config.dropout_rate,
            state: ModuleState::default(),
        })
    }

    /// `[batch, tokens, inner]` to `[batch, heads, tokens, head_size]`.
    fn heads(&self, projected: &Tensor) -> Result<Tensor> {
        let (batch, tokens, _) = projected.size3()?;
        Ok(projected
            .f_view([batch, tokens, -1, self.head_size])?
            .f_transpose(1, 2)?)
    }

    fn keys_and_values(&self, states: &Tensor) -> Result<(Tensor, Tensor)> {
        Ok((
            self.heads(&self.k.call(states)?)?,
            self.heads(&self.v.call(states)?)?,
        ))
    }

    /// The bias of each head for each pair of a query and a key, `[1, heads, queries, keys]`.
    fn position_bias(
        &self,
        embedding: &Embedding,
        queries: i64,
        keys: i64,
        past: i64,
    ) -> Result<Tensor> {
        let device = embedding.weight.tensor().device();
        let pairs = self.buckets.of_pairs(queries, keys, past, device)?;
        Ok(embedding
            .call(pairs)?
            .f_permute([2, 0, 1])?
            .f_unsqueeze(0)?)
    }
}

impl Forward for T5Attention {
    type Input = T5AttentionInput;
    type Output = (Tensor, Option<Tensor>);

    fn forward(&self, input: T5AttentionInput) -> Result<Self::Output> {
        let T5AttentionInput {
            hidden,
            key_value_states,
            mask,
            bias,
            cache,
        } = input;
        let (batch, tokens, _) = hidden.size3()?;
        let query = self.heads(&self.q.call(&hidden)?)?;
        let past = cache.as_ref().map_or(0, LayerCache::tokens);
        let (key, value) = match (&key_value_states, &cache) {
            (Some(states), Some(cache)) => cache.cross(|| self.keys_and_values(states))?,
            (Some(states), None) => self.keys_and_values(states)?,
            (None, cache) => {
                let (key, value) = self.keys_and_values(&hidden)?;
                match cache {
                    Some(cache) => cache.append(&key, &value)?,
                    None => (key, value),
                }
            }
        };
        let bias = match (bias, &self.relative_attention_bias) {
            (Some(bias), _) => Some(bias),
            (None, Some(embedding)) => {
                let bias = self.position_bias(embedding, tokens, key.size4()?.2, past)?;
                Some(mask::joined(&bias, mask.as_ref())?)
            }
            (None, None) => {
                let kind = query.f_kind()?;
                mask.map(|mask| mask::alone(&mask, kind)).transpose()?
            }
        };
        let settings = Attention {
            dropout: if self.is_training() {
                self.dropout
            } else {
                0.0
            },
            causal: false,
            scale: Some(1.0),
        };
        let mixed = scaled_dot_product_attention(&query, &key, &value, bias.as_ref(), &settings)?;
        let mixed = mixed
            .f_transpose(1, 2)?
            .f_contiguous()?
            .f_reshape([batch, tokens, -1])?;
        Ok((self.o.call(mixed)?, bias))
    }
}
