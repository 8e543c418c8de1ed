//! Attention with linear biases.

use tch::{Device, Kind, Tensor};

use crate::{Error, Result};

/// How steeply each head's bias falls with distance: a geometric series, and for a number of
/// heads that is no power of two, every other value of the next finer series.
///
/// # Shapes
/// `[heads]` of float32 on the CPU.
///
/// # Errors
/// [`Error::Argument`] without heads.
///
/// # Source
/// `build_alibi_tensor` of `transformers`' BLOOM.
pub fn alibi_slopes(num_heads: i64) -> Result<Tensor> {
    if num_heads < 1 {
        return Err(Error::Argument {
            operation: "alibi_slopes",
            expected: "at least 1 head".to_owned(),
            found: num_heads.to_string(),
        });
    }
    let whole = 1_i64 << num_heads.ilog2();
    // The base of the series for `heads` heads, whose last value is 2^-8.
    let base = |heads: i64| 2_f64.powf(-8.0 / heads as f64);
    let series = |heads: i64, last: i64, step: i64| {
        let options = (Kind::Float, Device::Cpu);
        Tensor::f_arange_start_step(1, last + 1, step, options)
            .and_then(|powers| Tensor::f_pow_scalar(base(heads), &powers))
    };
    let first = series(whole, whole, 1)?;
    let rest = num_heads - whole;
    if rest == 0 {
        return Ok(first);
    }
    Ok(Tensor::f_cat(&[first, series(2 * whole, 2 * rest, 2)?], 0)?)
}

/// What each head adds to its products for each key: the slope times the key's position.
///
/// Only differences between keys matter to the softmax, so this is as good as a bias by distance
/// and needs one row instead of a square. Padding has the position 0 and must be masked.
///
/// # Shapes
/// - `slopes`: `[heads]`
/// - `attention_mask`: `[rows, keys]`, not 0 where there is a token
/// - output: `[rows, heads, 1, keys]` of the slopes' type
///
/// # Errors
/// If the shapes do not fit.
///
/// # Source
/// As [`alibi_slopes`]. Differs: rows and heads are two dimensions.
pub fn alibi_biases(slopes: &Tensor, attention_mask: &Tensor) -> Result<Tensor> {
    let (rows, keys) = attention_mask.size2()?;
    let mask = attention_mask.f_to_kind(Kind::Int64)?;
    let positions = mask.f_cumsum(-1, None)?.f_sub_scalar(1)?.f_mul(&mask)?;
    let positions = positions.f_view([rows, 1, 1, keys])?;
    let slopes = slopes.f_to_device(mask.device())?.f_view([1, -1, 1, 1])?;
    Ok(slopes.f_mul(&positions)?)
}
