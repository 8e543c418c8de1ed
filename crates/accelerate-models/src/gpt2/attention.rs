//! Attention of every token to those before it.

use accelerate::Result;
use accelerate::nn::{
    Attention, Dropout, Factory, Forward, Module, ModuleState, scaled_dot_product_attention,
};
use tch::Tensor;

use super::{Conv1D, GPT2Config};
use crate::decoder::{DecoderLayerInput, joined_heads};

/// Causal attention over several heads.
///
/// # Shapes
/// `[rows, new, n_embd]` in and out.
#[derive(Debug, Clone, Module)]
pub struct GPT2Attention {
    c_attn: Conv1D,
    c_proj: Conv1D,
    attn_dropout: Dropout,
    resid_dropout: Dropout,
    #[module(skip)]
    head_width: i64,
    #[module(skip)]
    scale: f64,
    state: ModuleState,
}

impl GPT2Attention {
    pub(super) fn new(config: &GPT2Config, layer: usize, factory: &Factory) -> Result<Self> {
        let width = config.n_embd;
        let mut scale = 1.0;
        if config.scale_attn_weights {
            scale = (config.head_width() as f64).powf(-0.5);
        }
        if config.scale_attn_by_inverse_layer_idx {
            scale /= (layer + 1) as f64;
        }
        Ok(Self {
            c_attn: Conv1D::new(width, 3 * width, factory)?,
            c_proj: Conv1D::new(width, width, factory)?,
            attn_dropout: Dropout::new(config.attn_pdrop)?,
            resid_dropout: Dropout::new(config.resid_pdrop)?,
            head_width: config.head_width(),
            scale,
            state: ModuleState::default(),
        })
    }
}

impl Forward for GPT2Attention {
    type Input = DecoderLayerInput;
    type Output = Tensor;

    fn forward(&self, input: DecoderLayerInput) -> Result<Tensor> {
        let (rows, tokens, width) = input.hidden.size3()?;
        let together = self.c_attn.call(&input.hidden)?;
        let part = |number: i64| -> Result<Tensor> {
            Ok(together
                .f_narrow(2, number * width, width)?
                .f_view([rows, tokens, -1, self.head_width])?
                .f_transpose(1, 2)?)
        };
        let (query, key, value) = (part(0)?, part(1)?, part(2)?);
        let (key, value) = match &input.cache {
            Some(cache) => cache.append(&key, &value)?,
            None => (key, value),
        };
        let settings = Attention {
            dropout: self.attn_dropout.active_probability(),
            causal: input.mask.causal,
            scale: Some(self.scale),
        };
        let mask = input.mask.mask.as_ref();
        let mixed = scaled_dot_product_attention(&query, &key, &value, mask, &settings)?;
        self.resid_dropout
            .call(self.c_proj.call(joined_heads(&mixed)?)?)
    }
}
