//! The layers of the encoder.

use accelerate::Result;
use accelerate::nn::{
    Activation, Dropout, Factory, Forward, LayerNorm, Linear, Module, ModuleState,
};
use tch::Tensor;

use super::{ViTAttention, ViTConfig};

/// The feed-forward part.
///
/// # Shapes
/// `[batch, vectors, hidden_size]`, in and out.
#[derive(Debug, Clone, Module)]
pub struct ViTMLP {
    activation_fn: Activation,
    fc1: Linear,
    fc2: Linear,
    state: ModuleState,
}

impl ViTMLP {
    fn new(config: &ViTConfig, factory: &Factory) -> Result<Self> {
        let (width, wide) = (config.hidden_size, config.intermediate_size);
        Ok(Self {
            activation_fn: Activation::new(config.hidden_act.into()),
            fc1: Linear::new(width, wide, factory)?,
            fc2: Linear::new(wide, width, factory)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for ViTMLP {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        let wide = self.activation_fn.call(self.fc1.call(hidden)?)?;
        self.fc2.call(wide)
    }
}

/// One layer: attention, then the feed-forward part, each with its norm before it.
///
/// # Shapes
/// As [`ViTAttention`].
#[derive(Debug, Clone, Module)]
pub struct ViTLayer {
    attention: ViTAttention,
    layernorm_before: LayerNorm,
    layernorm_after: LayerNorm,
    mlp: ViTMLP,
    dropout: Dropout,
    state: ModuleState,
}

impl ViTLayer {
    pub(super) fn new(config: &ViTConfig, factory: &Factory) -> Result<Self> {
        let norm = || LayerNorm::new(config.hidden_size, config.layer_norm_eps, factory);
        Ok(Self {
            attention: ViTAttention::new(config, factory)?,
            layernorm_before: norm()?,
            layernorm_after: norm()?,
            mlp: ViTMLP::new(config, factory)?,
            dropout: Dropout::new(config.hidden_dropout_prob)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for ViTLayer {
    type Input = (Tensor, Option<Tensor>);
    type Output = Tensor;

    fn forward(&self, (hidden, mask): Self::Input) -> Result<Tensor> {
        let attended = self
            .attention
            .call((self.layernorm_before.call(&hidden)?, mask))?;
        let hidden = self.dropout.call(attended)?.f_add(&hidden)?;
        let mixed = self.mlp.call(self.layernorm_after.call(&hidden)?)?;
        Ok(self.dropout.call(mixed)?.f_add(&hidden)?)
    }
}
