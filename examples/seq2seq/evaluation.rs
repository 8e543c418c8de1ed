//! How well lines are tidied up that the model has not seen.

use std::error::Error;

use accelerate::Accelerator;
use accelerate::data::PreparedDataLoader;
use accelerate::nn::{Forward, Module};
use accelerate::tch::{self, Kind, Tensor};
use accelerate_models::generation::{GenerateOptions, GenerationConfig, Prompt, generate};
use accelerate_models::loss::IGNORED_LABEL;
use accelerate_models::t5::{T5ForConditionalGeneration, T5Input};

use crate::batches::Batches;
use crate::pairs::Pair;
use crate::tokens::{END, PADDING};

/// Counts over all held-out lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Scores {
    right_tokens: i64,
    tokens: i64,
    exact: i64,
    lines: i64,
}

impl Scores {
    /// The share of tokens that were right where everything before was given.
    pub(crate) fn token_accuracy(self) -> f64 {
        ratio(self.right_tokens, self.tokens)
    }

    /// The share of lines that the model wrote by itself without a mistake.
    pub(crate) fn exact_match(self) -> f64 {
        ratio(self.exact, self.lines)
    }

    /// The number of lines.
    pub(crate) fn lines(self) -> i64 {
        self.lines
    }

    /// Adds lines, one row for each: right tokens, tokens, whether it was written exactly.
    fn add(&mut self, rows: &Tensor) -> accelerate::Result<()> {
        let sums: Vec<i64> = Vec::try_from(&rows.f_sum_dim_intlist(0, false, Kind::Int64)?)?;
        if let [right, tokens, exact] = sums[..] {
            self.right_tokens += right;
            self.tokens += tokens;
            self.exact += exact;
            self.lines += rows.size()[0];
        }
        Ok(())
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of tokens are far below 2^52"
)]
fn ratio(part: i64, whole: i64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// Scores the model on every line of a prepared loader, over all ranks.
pub(crate) fn evaluate(
    accelerator: &Accelerator,
    model: &T5ForConditionalGeneration,
    batches: &PreparedDataLoader<Vec<Pair>, Batches>,
) -> Result<Scores, Box<dyn Error>> {
    model.train(false);
    let mut scores = Scores::default();
    for batch in batches {
        let rows = tch::no_grad(|| score(model, batch?))?;
        scores.add(&accelerator.gather_for_metrics(rows)?)?;
    }
    model.train(true);
    Ok(scores)
}

/// A row for each line of a batch, as [`Scores::add`] takes them.
fn score(model: &T5ForConditionalGeneration, batch: T5Input) -> Result<Tensor, Box<dyn Error>> {
    let missing = "the batch has no text and labels";
    let (Some(ids), Some(labels)) = (&batch.input_ids, &batch.labels) else {
        return Err(missing.into());
    };
    let labels = labels.shallow_clone();
    let prompt = Prompt {
        input_ids: ids.shallow_clone(),
        attention_mask: batch.attention_mask.as_ref().map(Tensor::shallow_clone),
    };
    let written = write(model, &prompt, labels.size()[1])?;
    let predicted = model.call(batch)?.logits.f_argmax(-1, false)?;
    let counted = labels.f_ne(IGNORED_LABEL)?;
    let right = predicted.f_eq_tensor(&labels)?.f_logical_and(&counted)?;
    let count = |mask: &Tensor| mask.f_sum_dim_intlist(1, false, Kind::Int64);
    let expected = labels.f_masked_fill(&counted.f_logical_not()?, PADDING)?;
    let wrong = count(&written.f_ne_tensor(&expected)?)?;
    let columns = [
        count(&right)?,
        count(&counted)?,
        wrong.f_eq(0)?.f_to_kind(Kind::Int64)?,
    ];
    Ok(Tensor::f_stack(&columns, 1)?)
}

/// What the model writes, `[lines, tokens]`: the likeliest token each time, then padding. A line
/// that is longer than all expected ones is wrong already, so no more tokens are made.
pub(crate) fn write(
    model: &T5ForConditionalGeneration,
    prompt: &Prompt,
    tokens: i64,
) -> Result<Tensor, Box<dyn Error>> {
    let mut greedy = GenerationConfig::default();
    greedy.max_new_tokens = Some(tokens);
    greedy.eos_token_id = vec![END];
    greedy.pad_token_id = Some(PADDING);
    greedy.decoder_start_token_id = Some(PADDING);
    let made = generate(model, prompt, &greedy, GenerateOptions::default())?.new_tokens()?;
    let missing = tokens - made.size()[1];
    Ok(made.f_constant_pad_nd([0, missing])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_counted() {
        let mut scores = Scores::default();
        scores
            .add(&Tensor::from_slice(&[3i64, 4, 0, 5, 5, 1]).view([2, 3]))
            .unwrap();
        assert_eq!(scores.lines(), 2);
        assert!((scores.token_accuracy() - 8.0 / 9.0).abs() < 1e-12);
        assert!((scores.exact_match() - 0.5).abs() < 1e-12);
        assert_eq!(Scores::default().exact_match(), 0.0);
    }
}
