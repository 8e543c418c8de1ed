//! Single tokens that may not come, or have to.

use accelerate::{Error, Result};
use tch::Tensor;

use super::{LogitsProcessor, known, without};

/// Forbids end tokens until a sequence is long enough.
pub(super) struct MinLength {
    pub(super) tokens: i64,
    pub(super) ends: Vec<i64>,
}

impl LogitsProcessor for MinLength {
    fn process(&self, sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        if sequences.size2()?.1 >= self.tokens {
            return Ok(scores);
        }
        without(&scores, &self.ends)
    }
}

/// Lets nothing but one token follow a single one: the language a translation begins with.
pub(super) struct FirstToken {
    pub(super) token: i64,
}

impl LogitsProcessor for FirstToken {
    fn process(&self, sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        if sequences.size2()?.1 != 1 {
            return Ok(scores);
        }
        only(&scores, &[self.token], "`forced_bos_token_id`")
    }
}

/// Lets the longest sequences end with one of these tokens.
pub(super) struct LastToken {
    pub(super) longest: i64,
    pub(super) ends: Vec<i64>,
}

impl LogitsProcessor for LastToken {
    fn process(&self, sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        if sequences.size2()?.1 != self.longest - 1 {
            return Ok(scores);
        }
        only(&scores, &self.ends, "`forced_eos_token_id`")
    }
}

/// Makes end tokens likelier with each token beyond a length.
pub(super) struct Decay {
    /// The length up to which nothing changes.
    pub(super) start: i64,
    pub(super) factor: f64,
    pub(super) ends: Vec<i64>,
}

impl LogitsProcessor for Decay {
    fn process(&self, sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        let beyond = sequences.size2()?.1 - self.start;
        if beyond <= 0 {
            return Ok(scores);
        }
        let ends = known(&scores, &self.ends)?;
        let old = scores.f_index_select(1, &ends)?;
        // Of the absolute value, so that scores below 0 grow too.
        let more = old
            .f_abs()?
            .f_mul_scalar(self.factor.powf(beyond as f64) - 1.0)?
            .f_masked_fill(&old.f_isfinite()?.f_logical_not()?, 0.0)?;
        Ok(scores.f_index_add(1, &ends, &more)?)
    }
}

/// Forbids tokens, always or only as the first new one.
pub(super) struct Banned {
    pub(super) tokens: Vec<i64>,
    /// The length of the sequences that it counts for; all where absent.
    pub(super) only_at: Option<i64>,
}

impl LogitsProcessor for Banned {
    fn process(&self, sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        let length = sequences.size2()?.1;
        if self.only_at.is_some_and(|only_at| only_at != length) {
            return Ok(scores);
        }
        without(&scores, &self.tokens)
    }
}

/// Forbids everything but these tokens, which are all equally likely.
fn only(scores: &Tensor, tokens: &[i64], key: &str) -> Result<Tensor> {
    let vocab_size = scores.size2()?.1;
    if let Some(token) = tokens
        .iter()
        .find(|token| !(0..vocab_size).contains(*token))
    {
        return Err(Error::Argument {
            operation: "generate",
            expected: format!("a token within 0..{vocab_size} as {key}"),
            found: token.to_string(),
        });
    }
    let nothing = scores.f_full_like(f64::NEG_INFINITY)?;
    Ok(nothing.f_index_fill(1, &known(scores, tokens)?, 0.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forced_token_is_one_of_the_vocabulary() -> Result<()> {
        let sequences = Tensor::f_from_slice(&[0i64])?.f_view([1, 1])?;
        let scores = Tensor::f_from_slice(&[0.5f32, 1.0])?.f_view([1, 2])?;
        let forced = FirstToken { token: 1 }.process(&sequences, scores.shallow_clone())?;
        assert_eq!(forced.double_value(&[0, 0]), f64::NEG_INFINITY);
        assert_eq!(forced.double_value(&[0, 1]), 0.0);
        let error = FirstToken { token: 2 }.process(&sequences, scores).err();
        assert!(error.is_some_and(|error| {
            let text = error.to_string();
            text.contains("0..2") && text.contains("forced_bos_token_id")
        }));
        Ok(())
    }
}
