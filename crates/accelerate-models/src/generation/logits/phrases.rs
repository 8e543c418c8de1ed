//! Runs of tokens that are made likelier, less likely or impossible.

use accelerate::{Error, Result};
use tch::{Kind, Tensor};

use super::LogitsProcessor;
use crate::generation::GenerationConfig;

/// Runs of tokens, each with what is added to the score of its last token after the others.
type Phrases = Vec<(Vec<i64>, f64)>;

/// The runs that a configuration forbids; an end token alone stays allowed.
pub(super) fn bad_words(config: &GenerationConfig) -> Option<Phrases> {
    let is_end = |run: &[i64]| match run {
        [token] => config.eos_token_id.contains(token),
        _ => false,
    };
    let phrases: Phrases = config
        .bad_words_ids
        .iter()
        .filter(|run| !is_end(run))
        .map(|run| (run.clone(), f64::NEG_INFINITY))
        .collect();
    (!phrases.is_empty()).then_some(phrases)
}

/// Adds to the score of each token that would complete a run.
pub(super) struct PhraseBias {
    /// Runs of the same length together: each group is looked for at once.
    groups: Vec<Group>,
    largest: i64,
}

/// Runs that are equally long.
struct Group {
    /// How many tokens come before the last.
    before: i64,
    /// `[1, runs, before]`.
    starts: Tensor,
    /// The token that completes each, `[runs]`.
    last: Tensor,
    /// What is added to its score, `[runs]`.
    biases: Tensor,
}

impl PhraseBias {
    /// `phrases` are runs of at least one token; of equal ones, the last counts.
    pub(super) fn new(phrases: &[(Vec<i64>, f64)]) -> Result<Self> {
        let mut lengths: Vec<usize> = phrases.iter().map(|(run, _)| run.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let group = |&length: &usize| Group::new(phrases, length);
        Ok(Self {
            groups: lengths.iter().map(group).collect::<Result<_>>()?,
            largest: phrases
                .iter()
                .flat_map(|(run, _)| run.iter().copied())
                .max()
                .unwrap_or(0),
        })
    }
}

impl Group {
    fn new(phrases: &[(Vec<i64>, f64)], length: usize) -> Result<Self> {
        let mut runs: Vec<(&[i64], f32)> = Vec::new();
        for (run, bias) in phrases.iter().filter(|(run, _)| run.len() == length) {
            let bias = *bias as f32;
            match runs.iter_mut().find(|(other, _)| *other == run.as_slice()) {
                Some((_, old)) => *old = bias,
                None => runs.push((run.as_slice(), bias)),
            }
        }
        let before = length.saturating_sub(1);
        let starts: Vec<i64> = runs
            .iter()
            .flat_map(|(run, _)| run.iter().take(before).copied())
            .collect();
        let last: Vec<i64> = runs
            .iter()
            .filter_map(|(run, _)| run.last().copied())
            .collect();
        let biases: Vec<f32> = runs.iter().map(|&(_, bias)| bias).collect();
        let shape = [1, runs.len() as i64, before as i64];
        Ok(Self {
            before: before as i64,
            starts: Tensor::f_from_slice(&starts)?.f_reshape(shape)?,
            last: Tensor::f_from_slice(&last)?,
            biases: Tensor::f_from_slice(&biases)?,
        })
    }

    /// The biases with those added whose run would be complete.
    fn add_to(&self, sequences: &Tensor, sums: Tensor) -> Result<Tensor> {
        let tokens = sequences.size2()?.1;
        if self.before > tokens {
            return Ok(sums);
        }
        let device = sums.device();
        let end = sequences.f_narrow(1, tokens - self.before, self.before)?;
        let matches = end
            .f_unsqueeze(1)?
            .f_eq_tensor(&self.starts.f_to_device(device)?)?
            .f_all_dim(-1, false)?;
        let biases = self.biases.f_to_device(device)?.f_expand_as(&matches)?;
        // Not a product: nothing times an infinite bias is no number.
        let biases = biases.f_masked_fill(&matches.f_logical_not()?, 0.0)?;
        Ok(sums.f_index_add(1, &self.last.f_to_device(device)?, &biases)?)
    }
}

impl LogitsProcessor for PhraseBias {
    fn process(&self, sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        let vocab_size = scores.size2()?.1;
        if self.largest >= vocab_size {
            return Err(Error::Argument {
                operation: "generate",
                expected: format!(
                    "tokens within 0..{vocab_size} in `sequence_bias` and `bad_words_ids`"
                ),
                found: self.largest.to_string(),
            });
        }
        let none = scores.f_zeros_like()?.f_to_kind(Kind::Float)?;
        let bias = self
            .groups
            .iter()
            .try_fold(none, |sums, group| group.add_to(sequences, sums))?;
        Ok(scores.f_add(&bias)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_runs_the_last_counts_and_an_end_is_no_bad_word() -> Result<()> {
        let bias = PhraseBias::new(&[(vec![1], 3.0), (vec![0, 1], 1.0), (vec![1], 2.0)])?;
        let sequences = Tensor::f_from_slice(&[0i64, 2])?.f_view([2, 1])?;
        let scores = Tensor::f_zeros([2, 3], (Kind::Float, sequences.device()))?;
        let found = bias.process(&sequences, scores.shallow_clone())?;
        let found: Vec<f32> = Vec::try_from(&found.f_reshape([-1])?)?;
        assert_eq!(found, [0.0, 3.0, 0.0, 0.0, 2.0, 0.0]);

        let outside = PhraseBias::new(&[(vec![0, 3], 1.0)])?;
        let error = outside.process(&sequences, scores).err();
        assert!(error.is_some_and(|error| error.to_string().contains("0..3")));

        let mut config = GenerationConfig::default();
        config.bad_words_ids = vec![vec![2], vec![2, 2]];
        config.eos_token_id = vec![2];
        assert_eq!(
            bad_words(&config),
            Some(vec![(vec![2, 2], f64::NEG_INFINITY)])
        );
        config.bad_words_ids.pop();
        assert_eq!(bad_words(&config), None);
        Ok(())
    }
}
