//! The feed-forward part.

use accelerate::Result;
use accelerate::nn::{Activation, Dropout, Factory, Forward, Linear, Module, ModuleState};
use tch::{Kind, Tensor};

use super::{T5Config, T5LayerNorm};

/// Two layers with an activation between them.
///
/// # Shapes
/// `[batch, tokens, d_model]` to the same.
#[derive(Debug, Clone, Module)]
pub struct T5DenseActDense {
    wi: Linear,
    wo: Linear,
    dropout: Dropout,
    act: Activation,
    state: ModuleState,
}

impl T5DenseActDense {
    fn new(config: &T5Config, factory: &Factory) -> Result<Self> {
        Ok(Self {
            wi: Linear::without_bias(config.d_model, config.d_ff, factory)?,
            wo: narrowing(config, factory)?,
            dropout: Dropout::new(config.dropout_rate)?,
            act: Activation::new(config.feed_forward_proj.activation),
            state: ModuleState::default(),
        })
    }
}

impl Forward for T5DenseActDense {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        let hidden = self.act.call(self.wi.call(hidden)?)?;
        let hidden = self.dropout.call(hidden)?;
        self.wo.call(as_weight(hidden, &self.wo)?)
    }
}

/// Two layers, the first scaled by the activation of a third.
///
/// # Shapes
/// As [`T5DenseActDense`].
#[derive(Debug, Clone, Module)]
pub struct T5DenseGatedActDense {
    wi_0: Linear,
    wi_1: Linear,
    wo: Linear,
    dropout: Dropout,
    act: Activation,
    state: ModuleState,
}

impl T5DenseGatedActDense {
    fn new(config: &T5Config, factory: &Factory) -> Result<Self> {
        Ok(Self {
            wi_0: Linear::without_bias(config.d_model, config.d_ff, factory)?,
            wi_1: Linear::without_bias(config.d_model, config.d_ff, factory)?,
            wo: narrowing(config, factory)?,
            dropout: Dropout::new(config.dropout_rate)?,
            act: Activation::new(config.feed_forward_proj.activation),
            state: ModuleState::default(),
        })
    }
}

impl Forward for T5DenseGatedActDense {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        let gate = self.act.call(self.wi_0.call(&hidden)?)?;
        let hidden = gate.f_mul(&self.wi_1.call(hidden)?)?;
        let hidden = self.dropout.call(hidden)?;
        self.wo.call(as_weight(hidden, &self.wo)?)
    }
}

/// The layer back to `d_model`: float32 in a model of float16, whose range it leaves.
fn narrowing(config: &T5Config, factory: &Factory) -> Result<Linear> {
    let wide = Factory::new(factory.device(), Kind::Float).with_init(factory.init());
    let factory = match factory.kind() {
        Kind::Half => &wide,
        _ => factory,
    };
    Linear::without_bias(config.d_ff, config.d_model, factory)
}

/// The hidden states in the type of the weight that they meet.
fn as_weight(hidden: Tensor, layer: &Linear) -> Result<Tensor> {
    let kind = layer.weight.tensor().f_kind()?;
    let floating = matches!(
        kind,
        Kind::Float | Kind::Double | Kind::Half | Kind::BFloat16
    );
    if floating && hidden.f_kind()? != kind {
        return Ok(hidden.f_to_kind(kind)?);
    }
    Ok(hidden)
}

/// Either kind of feed-forward part.
#[derive(Debug, Clone, Module)]
pub enum T5FeedForward {
    /// `relu` and its like.
    Plain(T5DenseActDense),
    /// `gated-gelu` and its like.
    Gated(T5DenseGatedActDense),
}

impl Forward for T5FeedForward {
    type Input = Tensor;
    type Output = Tensor;

    // The hooks are those of the part inside, and run around this.
    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        match self {
            Self::Plain(part) => part.forward(hidden),
            Self::Gated(part) => part.forward(hidden),
        }
    }
}

/// The feed-forward part, normalised before and added to what came in.
///
/// # Shapes
/// `[batch, tokens, d_model]` to the same.
#[derive(Debug, Clone, Module)]
#[expect(
    non_snake_case,
    reason = "fields have the names of the public checkpoint"
)]
pub struct T5LayerFF {
    DenseReluDense: T5FeedForward,
    layer_norm: T5LayerNorm,
    dropout: Dropout,
    state: ModuleState,
}

impl T5LayerFF {
    pub(super) fn new(config: &T5Config, factory: &Factory) -> Result<Self> {
        let part = if config.feed_forward_proj.gated {
            T5FeedForward::Gated(T5DenseGatedActDense::new(config, factory)?)
        } else {
            T5FeedForward::Plain(T5DenseActDense::new(config, factory)?)
        };
        Ok(Self {
            DenseReluDense: part,
            layer_norm: T5LayerNorm::new(config.d_model, config.layer_norm_epsilon, factory)?,
            dropout: Dropout::new(config.dropout_rate)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for T5LayerFF {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        let forwarded = self.DenseReluDense.call(self.layer_norm.call(&hidden)?)?;
        Ok(hidden.f_add(&self.dropout.call(forwarded)?)?)
    }
}
