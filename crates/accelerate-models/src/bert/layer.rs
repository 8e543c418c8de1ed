//! The layers of the encoder.

use accelerate::Result;
use accelerate::nn::{
    Activation, Dropout, Factory, Forward, LayerNorm, Linear, Module, ModuleState,
};
use tch::Tensor;

use super::{BertAttention, BertConfig};

/// The widening half of the feed-forward part.
///
/// # Shapes
/// `[batch, tokens, hidden_size]` to `[batch, tokens, intermediate_size]`.
#[derive(Debug, Clone, Module)]
pub struct BertIntermediate {
    dense: Linear,
    intermediate_act_fn: Activation,
    state: ModuleState,
}

impl BertIntermediate {
    pub(super) fn new(config: &BertConfig, factory: &Factory) -> Result<Self> {
        Ok(Self {
            dense: Linear::new(config.hidden_size, config.intermediate_size, factory)?,
            intermediate_act_fn: Activation::new(config.hidden_act.into()),
            state: ModuleState::default(),
        })
    }
}

impl Forward for BertIntermediate {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        self.intermediate_act_fn.call(self.dense.call(hidden)?)
    }
}

/// The narrowing half of the feed-forward part, added to what came in and normalised.
///
/// # Shapes
/// `[batch, tokens, intermediate_size]` and `[batch, tokens, hidden_size]` to the latter.
#[derive(Debug, Clone, Module)]
#[expect(
    non_snake_case,
    reason = "fields have the names of the public checkpoint"
)]
pub struct BertOutput {
    dense: Linear,
    LayerNorm: LayerNorm,
    dropout: Dropout,
    state: ModuleState,
}

impl BertOutput {
    pub(super) fn new(config: &BertConfig, factory: &Factory) -> Result<Self> {
        Ok(Self {
            dense: Linear::new(config.intermediate_size, config.hidden_size, factory)?,
            LayerNorm: LayerNorm::new(config.hidden_size, config.layer_norm_eps, factory)?,
            dropout: Dropout::new(config.hidden_dropout_prob)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for BertOutput {
    type Input = (Tensor, Tensor);
    type Output = Tensor;

    fn forward(&self, (hidden, residual): Self::Input) -> Result<Tensor> {
        let hidden = self.dropout.call(self.dense.call(hidden)?)?;
        self.LayerNorm.call(hidden.f_add(&residual)?)
    }
}

/// One layer: attention, then the feed-forward part.
///
/// # Shapes
/// - input: hidden states `[batch, tokens, hidden_size]` and the attention mask
/// - output: `[batch, tokens, hidden_size]`
#[derive(Debug, Clone, Module)]
pub struct BertLayer {
    attention: BertAttention,
    intermediate: BertIntermediate,
    output: BertOutput,
    state: ModuleState,
}

impl BertLayer {
    pub(super) fn new(config: &BertConfig, factory: &Factory) -> Result<Self> {
        Ok(Self {
            attention: BertAttention::new(config, factory)?,
            intermediate: BertIntermediate::new(config, factory)?,
            output: BertOutput::new(config, factory)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for BertLayer {
    type Input = (Tensor, Option<Tensor>);
    type Output = Tensor;

    fn forward(&self, input: Self::Input) -> Result<Tensor> {
        let attended = self.attention.call(input)?;
        let wide = self.intermediate.call(&attended)?;
        self.output.call((wide, attended))
    }
}

/// All layers, one after the other.
///
/// # Shapes
/// As [`BertLayer`].
#[derive(Debug, Clone, Module)]
pub struct BertEncoder {
    pub(super) layer: Vec<BertLayer>,
    state: ModuleState,
}

impl BertEncoder {
    pub(super) fn new(config: &BertConfig, factory: &Factory) -> Result<Self> {
        let layer = (0..config.num_hidden_layers)
            .map(|_| BertLayer::new(config, factory))
            .collect::<Result<_>>()?;
        Ok(Self {
            layer,
            state: ModuleState::default(),
        })
    }
}

impl Forward for BertEncoder {
    type Input = (Tensor, Option<Tensor>);
    type Output = Tensor;

    fn forward(&self, (hidden, mask): Self::Input) -> Result<Tensor> {
        self.layer
            .iter()
            .try_fold(hidden, |hidden, layer| layer.call((hidden, mask.as_ref())))
    }
}
