//! The layers of the decoder.

use accelerate::Result;
use accelerate::nn::{Activation, Factory, Forward, Linear, Module, ModuleState, RmsNorm};
use tch::Tensor;

use super::LlamaConfig;
use crate::decoder::{DecoderLayerInput, RotaryAttention};

/// The feed-forward part: one half gates the other.
///
/// # Shapes
/// `[rows, new, hidden_size]` in and out.
#[derive(Debug, Clone, Module)]
pub struct LlamaMLP {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
    act_fn: Activation,
    state: ModuleState,
}

impl LlamaMLP {
    fn new(config: &LlamaConfig, factory: &Factory) -> Result<Self> {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let linear = |inputs, outputs| {
            if config.mlp_bias {
                Linear::new(inputs, outputs, factory)
            } else {
                Linear::without_bias(inputs, outputs, factory)
            }
        };
        Ok(Self {
            gate_proj: linear(width, inner)?,
            up_proj: linear(width, inner)?,
            down_proj: linear(inner, width)?,
            act_fn: Activation::new(config.hidden_act.into()),
            state: ModuleState::default(),
        })
    }
}

impl Forward for LlamaMLP {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        let gate = self.act_fn.call(self.gate_proj.call(&hidden)?)?;
        let up = self.up_proj.call(&hidden)?;
        self.down_proj.call(gate.f_mul(&up)?)
    }
}

/// One layer: attention, then the feed-forward part, each normalised before and added after.
///
/// # Shapes
/// `[rows, new, hidden_size]` in and out.
#[derive(Debug, Clone, Module)]
pub struct LlamaDecoderLayer {
    self_attn: RotaryAttention,
    mlp: LlamaMLP,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
    state: ModuleState,
}

impl LlamaDecoderLayer {
    pub(super) fn new(config: &LlamaConfig, factory: &Factory) -> Result<Self> {
        Ok(Self {
            self_attn: RotaryAttention::new("LlamaAttention", config.attention(), factory)?,
            mlp: LlamaMLP::new(config, factory)?,
            input_layernorm: norm(config, factory)?,
            post_attention_layernorm: norm(config, factory)?,
            state: ModuleState::default(),
        })
    }
}

pub(super) fn norm(config: &LlamaConfig, factory: &Factory) -> Result<RmsNorm> {
    Ok(
        RmsNorm::new(config.hidden_size, config.rms_norm_eps, factory)?
            .with_class_name("LlamaRMSNorm"),
    )
}

impl Forward for LlamaDecoderLayer {
    type Input = DecoderLayerInput;
    type Output = Tensor;

    fn forward(&self, input: DecoderLayerInput) -> Result<Tensor> {
        let normed = self.input_layernorm.call(&input.hidden)?;
        let attended = self.self_attn.call(input.with_hidden(normed))?;
        let hidden = input.hidden.f_add(&attended)?;
        let wide = self
            .mlp
            .call(self.post_attention_layernorm.call(&hidden)?)?;
        Ok(hidden.f_add(&wide)?)
    }
}
