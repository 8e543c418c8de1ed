//! Scaled dot-product attention.

use tch::Tensor;

use crate::Result;

/// The settings of [`scaled_dot_product_attention`]; the default is plain attention.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Attention {
    /// The probability to drop an attention weight; 0 outside training.
    pub dropout: f64,
    /// Whether a position sees only itself and those before it. Not together with a mask.
    pub causal: bool,
    /// What the products are multiplied with; `1 / √width` where absent.
    pub scale: Option<f64>,
}

/// `softmax(query · keyᵀ · scale + mask) · value`, in libtorch's fused kernel where there is one.
///
/// # Shapes
/// - `query`: `[batch, heads, queries, width]`
/// - `key`, `value`: `[batch, heads, keys, width]`
/// - `mask`: broadcasts to `[batch, heads, queries, keys]`; bool (true takes part) or added to
///   the products
/// - output: as `query`
///
/// # Errors
/// If shapes, types or devices do not fit, or a mask is given to causal attention.
///
/// # Source
/// `torch.nn.functional.scaled_dot_product_attention`.
pub fn scaled_dot_product_attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
    settings: &Attention,
) -> Result<Tensor> {
    let Attention {
        dropout,
        causal,
        scale,
    } = *settings;
    Ok(Tensor::f_scaled_dot_product_attention(
        query, key, value, mask, dropout, causal, scale, false,
    )?)
}
