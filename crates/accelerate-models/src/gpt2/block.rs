//! The layers of the decoder.

use accelerate::Result;
use accelerate::nn::{Activation, Dropout, Factory, Forward, LayerNorm, Module, ModuleState};
use tch::Tensor;

use super::{Conv1D, GPT2Attention, GPT2Config};
use crate::decoder::DecoderLayerInput;

/// The feed-forward part.
///
/// # Shapes
/// `[rows, new, n_embd]` in and out.
#[derive(Debug, Clone, Module)]
pub struct GPT2MLP {
    c_fc: Conv1D,
    c_proj: Conv1D,
    act: Activation,
    dropout: Dropout,
    state: ModuleState,
}

impl GPT2MLP {
    fn new(config: &GPT2Config, factory: &Factory) -> Result<Self> {
        let (width, inner) = (config.n_embd, config.inner_width());
        Ok(Self {
            c_fc: Conv1D::new(width, inner, factory)?,
            c_proj: Conv1D::new(inner, width, factory)?,
            act: Activation::new(config.activation_function.into()),
            dropout: Dropout::new(config.resid_pdrop)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for GPT2MLP {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        let wide = self.act.call(self.c_fc.call(hidden)?)?;
        self.dropout.call(self.c_proj.call(wide)?)
    }
}

/// One layer: attention, then the feed-forward part, each normalised before and added after.
///
/// # Shapes
/// `[rows, new, n_embd]` in and out.
#[derive(Debug, Clone, Module)]
pub struct GPT2Block {
    ln_1: LayerNorm,
    attn: GPT2Attention,
    ln_2: LayerNorm,
    mlp: GPT2MLP,
    state: ModuleState,
}

impl GPT2Block {
    pub(super) fn new(config: &GPT2Config, layer: usize, factory: &Factory) -> Result<Self> {
        let norm = || LayerNorm::new(config.n_embd, config.layer_norm_epsilon, factory);
        Ok(Self {
            ln_1: norm()?,
            attn: GPT2Attention::new(config, layer, factory)?,
            ln_2: norm()?,
            mlp: GPT2MLP::new(config, factory)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for GPT2Block {
    type Input = DecoderLayerInput;
    type Output = Tensor;

    fn forward(&self, input: DecoderLayerInput) -> Result<Tensor> {
        let normed = self.ln_1.call(&input.hidden)?;
        let attended = self.attn.call(input.with_hidden(normed))?;
        let hidden = attended.f_add(&input.hidden)?;
        let wide = self.mlp.call(self.ln_2.call(&hidden)?)?;
        Ok(hidden.f_add(&wide)?)
    }
}
