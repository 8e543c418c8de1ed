//! What was there before becomes less likely, or impossible.

use accelerate::Result;
use tch::{Kind, Tensor};

use super::{LogitsProcessor, without_matches};

/// Makes tokens that are there already less likely.
pub(super) struct RepetitionPenalty {
    pub(super) penalty: f64,
    pub(super) padding: Option<Tensor>,
}

impl LogitsProcessor for RepetitionPenalty {
    fn process(&self, sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        let vocab_size = scores.size2()?.1;
        let mut seen = sequences.shallow_clone();
        if let Some(padding) = &self.padding {
            let places = Tensor::f_arange(seen.size2()?.1, (Kind::Int64, seen.device()))?;
            let padded = places.f_lt_tensor(&padding.f_unsqueeze(-1)?)?;
            seen = seen.f_masked_fill(&padded, vocab_size)?;
        }
        penalized(&scores, &seen, self.penalty)
    }
}

/// Makes the tokens of the prompt likelier, so that less is made up.
pub(super) struct PromptRepetition {
    penalty: f64,
    prompt: Tensor,
}

impl PromptRepetition {
    pub(super) fn new(penalty: f64, prompt: &Tensor) -> Self {
        Self {
            penalty: 1.0 / penalty,
            prompt: prompt.shallow_clone(),
        }
    }
}

impl LogitsProcessor for PromptRepetition {
    fn process(&self, _sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        let rows = scores.size2()?.0;
        let seen = for_rows(&self.prompt, rows)?.f_to_device(scores.device())?;
        penalized(&scores, &seen, self.penalty)
    }
}

/// Forbids each token that would complete a run of tokens that is there already.
pub(super) struct NoRepeatNgrams {
    pub(super) size: i64,
}

impl LogitsProcessor for NoRepeatNgrams {
    fn process(&self, sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        without_runs_of(sequences, self.size, sequences, scores)
    }
}

/// Forbids each token that would complete a run of tokens of the prompt.
pub(super) struct NoRepeatPromptNgrams {
    size: i64,
    prompt: Tensor,
}

impl NoRepeatPromptNgrams {
    pub(super) fn new(size: i64, prompt: &Tensor) -> Self {
        Self {
            size,
            prompt: prompt.shallow_clone(),
        }
    }
}

impl LogitsProcessor for NoRepeatPromptNgrams {
    fn process(&self, sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        let rows = scores.size2()?.0;
        let prompt = for_rows(&self.prompt, rows)?.f_to_device(scores.device())?;
        without_runs_of(&prompt, self.size, sequences, scores)
    }
}

/// Scores of tokens that were seen, `[rows, seen]`, divided by the penalty, or multiplied where they
/// are below 0; what is outside the vocabulary is not seen.
fn penalized(scores: &Tensor, seen: &Tensor, penalty: f64) -> Result<Tensor> {
    let vocab_size = scores.size2()?.1;
    // One more place takes what is to stay as it is.
    let seen = seen.f_clamp_max(vocab_size)?;
    let wide = scores.f_pad([0, 1], "constant", 0.0)?;
    let old = wide.f_gather(1, &seen, false)?;
    let lower = old.f_mul_scalar(penalty)?;
    let new = lower.f_where_self(&old.f_lt(0)?, &old.f_div_scalar(penalty)?)?;
    Ok(wide.f_scatter(1, &seen, &new)?.f_narrow(1, 0, vocab_size)?)
}

/// Forbids what would make the end of `sequences` a run of `size` tokens of `texts`, row by row.
fn without_runs_of(
    texts: &Tensor,
    size: i64,
    sequences: &Tensor,
    scores: Tensor,
) -> Result<Tensor> {
    let (tokens, before) = (sequences.size2()?.1, size - 1);
    if texts.size2()?.1 < size || tokens < before {
        return Ok(scores);
    }
    let runs = texts.f_unfold(1, size, 1)?;
    let end = sequences.f_narrow(1, tokens - before, before)?;
    let same = runs
        .f_narrow(2, 0, before)?
        .f_eq_tensor(&end.f_unsqueeze(1)?)?
        .f_all_dim(-1, false)?;
    without_matches(&scores, &runs.f_select(2, before)?, &same)
}

/// The rows of the prompts, each as often as several sequences belong to it.
fn for_rows(prompt: &Tensor, rows: i64) -> Result<Tensor> {
    let prompts = prompt.size2()?.0.max(1);
    Ok(prompt.f_repeat_interleave_self_int((rows / prompts).max(1), Some(0), None::<i64>)?)
}
