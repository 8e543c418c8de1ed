//! Whether token ids are those of the model.

use accelerate::{Error, Result};
use tch::{Device, Kind, Tensor};

/// The batch and the length of token ids, each checked to be within the vocabulary.
///
/// The values are looked at on the CPU only: elsewhere it would stop the stream at every step.
///
/// # Errors
/// [`Error::Argument`] naming the first id that is out of range, or a shape other than
/// `[batch, tokens]`.
pub(crate) fn check_token_ids(
    operation: &'static str,
    ids: &Tensor,
    vocab_size: i64,
) -> Result<(i64, i64)> {
    let &[batch, tokens] = ids.size().as_slice() else {
        return Err(Error::Argument {
            operation,
            expected: "token ids of shape [batch, tokens]".to_owned(),
            found: format!("the shape {:?}", ids.size()),
        });
    };
    if !matches!(ids.f_kind()?, Kind::Int64 | Kind::Int) {
        return Err(Error::Argument {
            operation,
            expected: "token ids of int64 or int32".to_owned(),
            found: format!("{:?}", ids.f_kind()?),
        });
    }
    if ids.device() == Device::Cpu && ids.numel() > 0 {
        for id in [ids.f_min()?, ids.f_max()?] {
            let id = id.f_int64_value(&[])?;
            if !(0..vocab_size).contains(&id) {
                return Err(Error::Argument {
                    operation,
                    expected: format!("token ids within 0..{vocab_size} (`vocab_size`)"),
                    found: id.to_string(),
                });
            }
        }
    }
    Ok((batch, tokens))
}
