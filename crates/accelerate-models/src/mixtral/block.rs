//! The layers of the decoder.

use accelerate::Result;
use accelerate::nn::{
    Activation, Factory, Forward, Init, Linear, MixtureOfExperts, Module, ModuleState, RmsNorm,
};
use tch::Tensor;

use super::MixtralConfig;
use crate::decoder::{DecoderLayerInput, RotaryAttention};

/// What the original calls a layer's router with its experts.
pub(super) const MOE_CLASS: &str = "MixtralSparseMoeBlock";

/// One expert: `w2(act(w1(x)) · w3(x))`.
///
/// # Shapes
/// `[tokens, hidden_size]` in and out.
#[derive(Debug, Clone, Module)]
pub struct MixtralBlockSparseTop2MLP {
    w1: Linear,
    w2: Linear,
    w3: Linear,
    act_fn: Activation,
    state: ModuleState,
}

impl MixtralBlockSparseTop2MLP {
    fn new(config: &MixtralConfig, factory: &Factory) -> Result<Self> {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        Ok(Self {
            w1: Linear::without_bias(width, inner, factory)?,
            w2: Linear::without_bias(inner, width, factory)?,
            w3: Linear::without_bias(width, inner, factory)?,
            act_fn: Activation::new(config.hidden_act.into()),
            state: ModuleState::default(),
        })
    }
}

impl Forward for MixtralBlockSparseTop2MLP {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        let gate = self.act_fn.call(self.w1.call(&hidden)?)?;
        self.w2.call(gate.f_mul(&self.w3.call(&hidden)?)?)
    }
}

/// One layer: attention, then the experts, each normalised before and added after.
///
/// # Shapes
/// `[rows, new, hidden_size]` in and out, and the router's logits, `[rows * new, experts]`.
#[derive(Debug, Clone, Module)]
pub struct MixtralDecoderLayer {
    self_attn: RotaryAttention,
    block_sparse_moe: MixtureOfExperts<MixtralBlockSparseTop2MLP>,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
    state: ModuleState,
}

impl MixtralDecoderLayer {
    pub(super) fn new(config: &MixtralConfig, factory: &Factory) -> Result<Self> {
        let (width, top_k) = (config.hidden_size, config.num_experts_per_tok);
        let self_attn = RotaryAttention::new("MixtralAttention", config.attention(), factory)?;
        // The original draws nothing for router and experts before the model's own first values.
        let undrawn = match factory.init() {
            Init::Layer => factory.with_init(Init::Skip),
            _ => *factory,
        };
        let experts = (0..config.num_local_experts)
            .map(|_| MixtralBlockSparseTop2MLP::new(config, &undrawn))
            .collect::<Result<_>>()?;
        Ok(Self {
            self_attn,
            block_sparse_moe: MixtureOfExperts::new(width, experts, top_k, &undrawn)?
                .with_jitter(config.router_jitter_noise)
                .with_class_name(MOE_CLASS),
            input_layernorm: norm(config, factory)?,
            post_attention_layernorm: norm(config, factory)?,
            state: ModuleState::default(),
        })
    }
}

pub(super) fn norm(config: &MixtralConfig, factory: &Factory) -> Result<RmsNorm> {
    Ok(
        RmsNorm::new(config.hidden_size, config.rms_norm_eps, factory)?
            .with_class_name("MixtralRMSNorm"),
    )
}

impl Forward for MixtralDecoderLayer {
    type Input = DecoderLayerInput;
    type Output = (Tensor, Tensor);

    fn forward(&self, input: DecoderLayerInput) -> Result<(Tensor, Tensor)> {
        let normed = self.input_layernorm.call(&input.hidden)?;
        let attended = self.self_attn.call(input.with_hidden(normed))?;
        let hidden = input.hidden.f_add(&attended)?;
        let (mixed, router_logits) = self
            .block_sparse_moe
            .call(self.post_attention_layernorm.call(&hidden)?)?;
        Ok((hidden.f_add(&mixed)?, router_logits))
    }
}
