//! Scaled dot-product attention.

use tch::Tensor;

use super::shape_only::{is_shape_only, shape_only};
use crate::{Error, Result};

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
/// Several heads of queries may share one head of keys and values (grouped-query attention): then
/// query head `i` uses key head `i / (heads / key heads)`.
///
/// # Shapes
/// - `query`: `[batch, heads, queries, width]`
/// - `key`, `value`: `[batch, key heads, keys, width]`, where `key heads` divides `heads`
/// - `mask`: broadcasts to `[batch, heads, queries, keys]`; bool (true takes part) or added to
///   the products
/// - output: as `query`
///
/// # Errors
/// [`Error::Argument`] if the key heads do not divide the heads, else if shapes, types or devices
/// do not fit, or a mask is given to causal attention.
///
/// # Source
/// `torch.nn.functional.scaled_dot_product_attention`, and `sdpa_attention_forward` of
/// `transformers` for shared heads.
pub fn scaled_dot_product_attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
    settings: &Attention,
) -> Result<Tensor> {
    if is_shape_only(query)? {
        return without_values(query, key, value);
    }
    let (heads, key_heads) = (heads(query), heads(key));
    if heads == key_heads {
        return kernel(query, key, value, mask, settings, false);
    }
    if key_heads < 1 || heads % key_heads != 0 {
        return Err(Error::Argument {
            operation: "scaled_dot_product_attention",
            expected: format!("a number of key heads that divides the {heads} heads"),
            found: key_heads.to_string(),
        });
    }
    let group = heads / key_heads;
    let (batch, _, queries, width) = query.size4()?;
    let shared_mask = mask.is_none_or(|mask| mask.dim() < 3 || mask.size()[mask.dim() - 3] == 1);
    if queries == 1 && shared_mask {
        // The heads of one group are so many queries of one head: no key is copied.
        let query = query.f_reshape([batch, key_heads, group, width])?;
        let settings = Attention {
            causal: false,
            ..*settings
        };
        let output = kernel(&query, key, value, mask, &settings, false)?;
        return Ok(output.f_reshape([batch, heads, 1, -1])?);
    }
    if mask.is_none() {
        return kernel(query, key, value, mask, settings, true);
    }
    // With a mask, the kernels that share heads are slower than copying the keys.
    let (key, value) = (repeated(key, group)?, repeated(value, group)?);
    kernel(query, &key, &value, mask, settings, false)
}

fn kernel(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    mask: Option<&Tensor>,
    settings: &Attention,
    grouped: bool,
) -> Result<Tensor> {
    let Attention {
        dropout,
        causal,
        scale,
    } = *settings;
    Ok(Tensor::f_scaled_dot_product_attention(
        query, key, value, mask, dropout, causal, scale, grouped,
    )?)
}

/// The shape of the output, for queries without values.
fn without_values(query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Tensor> {
    let (mut shape, keys, values) = (query.size(), key.size(), value.size());
    let fits = shape.len() == keys.len()
        && shape.last() == keys.last()
        && keys.iter().rev().skip(1).eq(values.iter().rev().skip(1));
    let (Some(last), Some(&width), true) = (shape.last_mut(), values.last(), fits) else {
        return Err(Error::Argument {
            operation: "scaled_dot_product_attention",
            expected: "keys as wide as the queries, and as many values".to_owned(),
            found: format!("the shapes {:?}, {keys:?} and {values:?}", query.size()),
        });
    };
    *last = width;
    shape_only(&shape, query)
}

/// The second dimension, or 1 where there are no heads.
fn heads(states: &Tensor) -> i64 {
    match states.size().as_slice() {
        &[_, heads, _, _] => heads,
        _ => 1,
    }
}

/// `[batch, heads, keys, width]` with each head `times` times, one after another.
fn repeated(states: &Tensor, times: i64) -> Result<Tensor> {
    let (batch, heads, keys, width) = states.size4()?;
    Ok(states
        .f_unsqueeze(2)?
        .f_expand([batch, heads, times, keys, width], false)?
        .f_reshape([batch, heads * times, keys, width])?)
}
