//! The normal distribution, cut off.

use accelerate_torch::meta;
use tch::{Device, Kind, Tensor};

use crate::{Error, Result};

/// Fills with draws from the normal distribution that lie within `low..=high`.
///
/// # Errors
/// [`Error::Argument`] if `std` is not positive or `low` is not below `high`. If the values are no
/// floating-point numbers.
///
/// # Source
/// `torch.nn.init.trunc_normal_` of PyTorch 2.13, which draws again what is out of bounds where the
/// bounds hold much of the distribution, and else draws evenly and rejects by height. Earlier
/// versions draw other numbers. Differs: bounds and deviations that cannot be right are errors.
pub fn trunc_normal(tensor: &Tensor, mean: f64, std: f64, low: f64, high: f64) -> Result<()> {
    // Also false for what is no number.
    if !(std > 0.0 && low < high) {
        return Err(Error::Argument {
            operation: "trunc_normal",
            expected: "a positive deviation, and a lower bound below the upper one".to_owned(),
            found: format!("std {std}, bounds {low} and {high}"),
        });
    }
    if meta::is_meta(tensor)? {
        return Ok(());
    }
    if mean < low - 2.0 * std || mean > high + 2.0 * std {
        tracing::warn!(
            mean,
            std,
            low,
            high,
            "the mean of a truncated normal distribution is more than two deviations outside of \
             its bounds; the values may not follow the distribution"
        );
    }
    let inside = below((high - mean) / std)? - below((low - mean) / std)?;
    tch::no_grad(|| {
        if inside > 0.3 {
            redraw(tensor, mean, std, low, high)
        } else {
            reject(tensor, mean, std, low, high)
        }
    })
}

/// The share of the standard normal distribution below `x`.
fn below(x: f64) -> Result<f64> {
    let erf = Tensor::from(x / 2.0_f64.sqrt()).f_erf()?;
    Ok((1.0 + erf.f_double_value(&[])?) / 2.0)
}

/// Draws everything, then again what is out of bounds, until nothing is.
fn redraw(tensor: &Tensor, mean: f64, std: f64, low: f64, high: f64) -> Result<()> {
    let kind = tensor.f_kind()?;
    let (low, high) = (rounded(low, kind)?, rounded(high, kind)?);
    let mut result = tensor.shallow_clone().f_normal_(mean, std)?;
    loop {
        let outside = result.f_lt(low)?.f_logical_or(&result.f_gt(high)?)?;
        if outside.f_any()?.f_int64_value(&[])? == 0 {
            break;
        }
        let again = result.f_empty_like()?.f_normal_(mean, std)?;
        result = again.f_where_self(&outside, &result)?;
    }
    tensor.shallow_clone().f_copy_(&result)?;
    Ok(())
}

/// A bound as the tensor's type holds it.
fn rounded(bound: f64, kind: Kind) -> Result<f64> {
    let bound = Tensor::f_full([], bound, (kind, Device::Cpu))?;
    Ok(bound.f_double_value(&[])?)
}

/// Draws evenly between the bounds, and again where a second draw is above the density.
fn reject(tensor: &Tensor, mean: f64, std: f64, low: f64, high: f64) -> Result<()> {
    let mode = low.max(mean.min(high));
    let log_peak = -0.5 * ((mode - mean) / std).powi(2);
    let log_density = |at: &Tensor| -> Result<Tensor> {
        Ok(at
            .f_sub_scalar(mean)?
            .f_div_scalar(std)?
            .f_square()?
            .f_mul_scalar(-0.5)?
            .f_sub_scalar(log_peak)?)
    };
    let height = tensor.f_empty_like()?;
    let rejected = |at: &Tensor| -> Result<Tensor> {
        let density = log_density(at)?;
        let mut height = height.shallow_clone().f_uniform_(0.0, 1.0)?;
        Ok(height.f_log_()?.f_gt_tensor(&density)?)
    };
    let mut result = tensor.shallow_clone().f_uniform_(low, high)?;
    let mut pending = rejected(&result)?;
    while pending.f_any()?.f_int64_value(&[])? != 0 {
        let candidates = result.f_empty_like()?.f_uniform_(low, high)?;
        result = candidates.f_where_self(&pending, &result)?;
        pending = pending.f_logical_and(&rejected(&candidates)?)?;
    }
    tensor.shallow_clone().f_copy_(&result)?;
    Ok(())
}
