//! Attention of every patch to every other.

use accelerate::Result;
use accelerate::nn::{
    Attention, Dropout, Factory, Forward, Linear, Module, ModuleState, scaled_dot_product_attention,
};
use tch::Tensor;

use super::ViTConfig;

/// Attention over several heads.
///
/// # Shapes
/// - input: hidden states `[batch, vectors, hidden_size]`, and a bool mask or none that broadcasts
///   to `[batch, heads, vectors, vectors]`
/// - output: `[batch, vectors, hidden_size]`
#[derive(Debug, Clone, Module)]
pub struct ViTAttention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    #[module(skip)]
    dropout: Dropout,
    #[module(skip)]
    head_size: i64,
    state: ModuleState,
}

impl ViTAttention {
    pub(super) fn new(config: &ViTConfig, factory: &Factory) -> Result<Self> {
        let width = config.hidden_size;
        let projection = || match config.qkv_bias {
            true => Linear::new(width, width, factory),
            false => Linear::without_bias(width, width, factory),
        };
        Ok(Self {
            q_proj: projection()?,
            k_proj: projection()?,
            v_proj: projection()?,
            o_proj: Linear::new(width, width, factory)?,
            dropout: Dropout::new(config.attention_probs_dropout_prob)?,
            head_size: config.head_size(),
            state: ModuleState::default(),
        })
    }

    /// `[batch, vectors, width]` to `[batch, heads, vectors, head_size]`.
    fn heads(&self, projected: &Tensor) -> Result<Tensor> {
        let (batch, vectors, _) = projected.size3()?;
        Ok(projected
            .f_view([batch, vectors, -1, self.head_size])?
            .f_transpose(1, 2)?)
    }
}

impl Forward for ViTAttention {
    type Input = (Tensor, Option<Tensor>);
    type Output = Tensor;

    fn forward(&self, (hidden, mask): Self::Input) -> Result<Tensor> {
        let (batch, vectors, _) = hidden.size3()?;
        let query = self.heads(&self.q_proj.call(&hidden)?)?;
        let key = self.heads(&self.k_proj.call(&hidden)?)?;
        let value = self.heads(&self.v_proj.call(&hidden)?)?;
        let settings = Attention {
            dropout: self.dropout.active_probability(),
            causal: false,
            scale: Some((self.head_size as f64).powf(-0.5)),
        };
        let mixed = scaled_dot_product_attention(&query, &key, &value, mask.as_ref(), &settings)?;
        let mixed = mixed
            .f_transpose(1, 2)?
            .f_contiguous()?
            .f_reshape([batch, vectors, -1])?;
        self.o_proj.call(mixed)
    }
}
