//! The loss of predicting the next token.

use accelerate::{Error, Result};
use tch::{Kind, Reduction, Tensor};

use crate::loss::{IGNORED_LABEL, cross_entropy};

/// The cross entropy of each next token, in float32: position `i` is held against label `i + 1`.
///
/// The mean over all labels that count, or, with `num_items`, the sum divided by that number:
/// what training with accumulated batches needs, where a token is to weigh the same in each.
///
/// # Shapes
/// - `logits`: `[rows, tokens, vocab_size]`
/// - `labels`: `[rows, tokens]`, as the input ids; [`IGNORED_LABEL`] does not count
///
/// # Errors
/// [`Error::Argument`] if the shapes do not fit, `num_items` is below 1, or, on the CPU, a label
/// is out of range.
///
/// # Source
/// `ForCausalLMLoss` of `transformers`.
pub fn causal_lm_loss(logits: &Tensor, labels: &Tensor, num_items: Option<i64>) -> Result<Tensor> {
    let (rows, tokens, vocab_size) = logits.size3()?;
    if labels.size() != [rows, tokens] {
        return Err(Error::Argument {
            operation: "causal_lm_loss",
            expected: format!("labels of shape {:?}", [rows, tokens]),
            found: format!("{:?}", labels.size()),
        });
    }
    let logits = logits.f_to_kind(Kind::Float)?;
    let next = labels
        .f_to_device(logits.device())?
        .f_to_kind(Kind::Int64)?
        .f_pad([0, 1], "constant", IGNORED_LABEL as f64)?
        .f_narrow(1, 1, tokens)?;
    let Some(count) = num_items else {
        return cross_entropy(&logits, &next);
    };
    if count < 1 {
        return Err(Error::Argument {
            operation: "causal_lm_loss",
            expected: "at least 1 item in the batch".to_owned(),
            found: count.to_string(),
        });
    }
    let sum = logits.f_view([-1, vocab_size])?.f_cross_entropy_loss(
        &next.f_reshape([-1])?,
        None::<Tensor>,
        Reduction::Sum,
        IGNORED_LABEL,
        0.0,
    )?;
    Ok(sum.f_div_scalar(count)?)
}
