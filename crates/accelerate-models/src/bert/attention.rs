//! Attention of every token to every other.

use accelerate::Result;
use accelerate::nn::{
    Attention, Dropout, Factory, Forward, LayerNorm, Linear, Module, ModuleState,
    scaled_dot_product_attention,
};
use tch::Tensor;

use super::BertConfig;

/// Attention over several heads.
///
/// # Shapes
/// - input: hidden states `[batch, tokens, hidden_size]` and a bool mask that broadcasts to
///   `[batch, heads, tokens, tokens]`
/// - output: `[batch, tokens, hidden_size]`
#[derive(Debug, Clone, Module)]
pub struct BertSelfAttention {
    query: Linear,
    key: Linear,
    value: Linear,
    dropout: Dropout,
    #[module(skip)]
    head_size: i64,
    state: ModuleState,
}

impl BertSelfAttention {
    pub(super) fn new(config: &BertConfig, factory: &Factory) -> Result<Self> {
        let width = config.hidden_size;
        Ok(Self {
            query: Linear::new(width, width, factory)?,
            key: Linear::new(width, width, factory)?,
            value: Linear::new(width, width, factory)?,
            dropout: Dropout::new(config.attention_probs_dropout_prob)?,
            head_size: config.head_size(),
            state: ModuleState::default(),
        })
    }

    /// `[batch, tokens, width]` to `[batch, heads, tokens, head_size]`.
    fn heads(&self, projected: &Tensor) -> Result<Tensor> {
        let (batch, tokens, _) = projected.size3()?;
        Ok(projected
            .f_view([batch, tokens, -1, self.head_size])?
            .f_transpose(1, 2)?)
    }
}

impl Forward for BertSelfAttention {
    type Input = (Tensor, Option<Tensor>);
    type Output = Tensor;

    fn forward(&self, (hidden, mask): Self::Input) -> Result<Tensor> {
        let (batch, tokens, _) = hidden.size3()?;
        let query = self.heads(&self.query.call(&hidden)?)?;
        let key = self.heads(&self.key.call(&hidden)?)?;
        let value = self.heads(&self.value.call(&hidden)?)?;
        let settings = Attention {
            dropout: self.dropout.active_probability(),
            causal: false,
            scale: Some((self.head_size as f64).powf(-0.5)),
        };
        let mixed = scaled_dot_product_attention(&query, &key, &value, mask.as_ref(), &settings)?;
        Ok(mixed
            .f_transpose(1, 2)?
            .f_contiguous()?
            .f_reshape([batch, tokens, -1])?)
    }
}

/// The way back from the heads, added to what came in and normalised.
///
/// # Shapes
/// Two tensors `[batch, tokens, hidden_size]`, the attention's output and its input; the result
/// is alike.
#[derive(Debug, Clone, Module)]
#[expect(
    non_snake_case,
    reason = "fields have the names of the public checkpoint"
)]
pub struct BertSelfOutput {
    dense: Linear,
    LayerNorm: LayerNorm,
    dropout: Dropout,
    state: ModuleState,
}

impl BertSelfOutput {
    pub(super) fn new(config: &BertConfig, factory: &Factory) -> Result<Self> {
        Ok(Self {
            dense: Linear::new(config.hidden_size, config.hidden_size, factory)?,
            LayerNorm: LayerNorm::new(config.hidden_size, config.layer_norm_eps, factory)?,
            dropout: Dropout::new(config.hidden_dropout_prob)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for BertSelfOutput {
    type Input = (Tensor, Tensor);
    type Output = Tensor;

    fn forward(&self, (hidden, residual): Self::Input) -> Result<Tensor> {
        let hidden = self.dropout.call(self.dense.call(hidden)?)?;
        self.LayerNorm.call(hidden.f_add(&residual)?)
    }
}

/// Attention with its way back: the first half of a layer.
///
/// # Shapes
/// As [`BertSelfAttention`].
#[derive(Debug, Clone, Module)]
pub struct BertAttention {
    #[module(name = "self")]
    self_: BertSelfAttention,
    output: BertSelfOutput,
    state: ModuleState,
}

impl BertAttention {
    pub(super) fn new(config: &BertConfig, factory: &Factory) -> Result<Self> {
        Ok(Self {
            self_: BertSelfAttention::new(config, factory)?,
            output: BertSelfOutput::new(config, factory)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for BertAttention {
    type Input = (Tensor, Option<Tensor>);
    type Output = Tensor;

    fn forward(&self, (hidden, mask): Self::Input) -> Result<Tensor> {
        let mixed = self.self_.call((&hidden, mask))?;
        self.output.call((mixed, hidden))
    }
}
