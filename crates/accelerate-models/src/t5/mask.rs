//! Masks as numbers that are added to the scores of attention.

use accelerate::{Error, Result};
use tch::{Device, Kind, Tensor};

/// A padding mask as bool, or none where nothing is padded.
///
/// # Shapes
/// `[batch, tokens]` to `[batch, 1, 1, tokens]`.
pub(super) fn padding(mask: Option<Tensor>, batch: i64, tokens: i64) -> Result<Option<Tensor>> {
    let Some(mask) = mask else { return Ok(None) };
    if mask.size() != [batch, tokens] {
        return Err(Error::Argument {
            operation: "T5Stack",
            expected: format!("an attention mask of shape [{batch}, {tokens}]"),
            found: format!("{:?}", mask.size()),
        });
    }
    let mask = mask.f_to_kind(Kind::Bool)?;
    if mask.f_all()?.f_int64_value(&[])? != 0 {
        return Ok(None);
    }
    Ok(Some(mask.f_view([batch, 1, 1, tokens])?))
}

/// Where the last `queries` of `tokens` tokens may look: at themselves and what is before them.
///
/// # Shapes
/// `[1, 1, queries, tokens]` of bool; none for a single query, which may look everywhere.
pub(super) fn causal(queries: i64, tokens: i64, device: Device) -> Result<Option<Tensor>> {
    if queries == 1 {
        return Ok(None);
    }
    let seen = Tensor::f_ones([queries, tokens], (Kind::Bool, device))?.f_tril(tokens - queries)?;
    Ok(Some(seen.f_view([1, 1, queries, tokens])?))
}

/// What both masks allow.
pub(super) fn both(first: Option<Tensor>, second: Option<Tensor>) -> Result<Option<Tensor>> {
    Ok(match (first, second) {
        (Some(first), Some(second)) => Some(first.f_logical_and(&second)?),
        (first, second) => first.or(second),
    })
}

/// `bias` where the mask is true, and the lowest number where it is not.
pub(super) fn joined(bias: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    let Some(mask) = mask else {
        return Ok(bias.f_contiguous()?);
    };
    let kind = bias.f_kind()?;
    let lowest = Tensor::f_full([1], lowest(kind), (kind, bias.device()))?;
    Ok(bias.f_where_self(mask, &lowest)?.f_contiguous()?)
}

/// A mask alone: 0 where it is true, the lowest number where it is not.
pub(super) fn alone(mask: &Tensor, kind: Kind) -> Result<Tensor> {
    joined(&Tensor::f_zeros([1], (kind, mask.device()))?, Some(mask))
}

/// The lowest finite number of a type. Not minus infinity: a row that sees nothing would be NaN.
fn lowest(kind: Kind) -> f64 {
    match kind {
        Kind::Half => -65504.0,
        Kind::BFloat16 => -3.389_531_389_251_535_5e38,
        Kind::Double => f64::MIN,
        _ => f64::from(f32::MIN),
    }
}
