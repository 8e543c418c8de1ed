//! When a sequence ends, beyond its length and its end tokens.

use std::time::{Duration, Instant};

use accelerate::Result;
use tch::{Kind, Tensor};

/// Says which sequences end after the newest token.
///
/// The longest length and the end tokens of the configuration count always; criteria of this
/// kind come on top.
///
/// # Source
/// `StoppingCriteria` of `transformers`.
pub trait StoppingCriterion {
    /// Which rows end now.
    ///
    /// # Shapes
    /// - `sequences`: `[rows, tokens]` of int64, prompt and padding included
    /// - output: `[rows]` of bool
    ///
    /// # Errors
    /// What the implementation reports; generation ends with it.
    fn ends(&self, sequences: &Tensor) -> Result<Tensor>;
}

/// Ends every sequence when a time is over.
#[derive(Debug, Clone, Copy)]
pub struct MaxTime {
    start: Instant,
    limit: Duration,
}

impl MaxTime {
    /// Begins to count now.
    pub fn new(limit: Duration) -> Self {
        Self {
            start: Instant::now(),
            limit,
        }
    }
}

impl StoppingCriterion for MaxTime {
    fn ends(&self, sequences: &Tensor) -> Result<Tensor> {
        let over = self.start.elapsed() > self.limit;
        let rows = sequences.size2()?.0;
        Ok(Tensor::f_full(
            [rows],
            i64::from(over),
            (Kind::Bool, sequences.device()),
        )?)
    }
}

/// Ends a sequence after one of these runs of tokens.
#[derive(Debug, Clone)]
pub struct StopTokens {
    runs: Vec<Vec<i64>>,
}

impl StopTokens {
    /// Ends after any of `runs`; an empty run never ends anything.
    pub fn new(runs: impl IntoIterator<Item = Vec<i64>>) -> Self {
        let runs = runs.into_iter().filter(|run| !run.is_empty()).collect();
        Self { runs }
    }
}

impl StoppingCriterion for StopTokens {
    fn ends(&self, sequences: &Tensor) -> Result<Tensor> {
        let (rows, tokens) = sequences.size2()?;
        let mut ends = Tensor::f_zeros([rows], (Kind::Bool, sequences.device()))?;
        for run in &self.runs {
            let length = run.len() as i64;
            if length > tokens {
                continue;
            }
            let run = Tensor::f_from_slice(run)?.f_to_device(sequences.device())?;
            let last = sequences.f_narrow(1, tokens - length, length)?;
            let same = last.f_eq_tensor(&run)?.f_all_dim(1, false)?;
            ends = ends.f_logical_or(&same)?;
        }
        Ok(ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_tokens_end_a_sequence() -> Result<()> {
        let sequences = Tensor::f_from_slice(&[1i64, 2, 3, 4, 3, 2])?.f_view([2, 3])?;
        let ends = |runs: &[&[i64]]| -> Result<Vec<bool>> {
            let runs = runs.iter().map(|run| run.to_vec());
            Ok(Vec::try_from(&StopTokens::new(runs).ends(&sequences)?)?)
        };
        assert_eq!(ends(&[&[2, 3]])?, [true, false]);
        assert_eq!(ends(&[&[9], &[3, 2], &[]])?, [false, true]);
        assert_eq!(ends(&[&[0, 1, 2, 3]])?, [false, false]);
        Ok(())
    }

    #[test]
    fn time_ends_every_sequence() -> Result<()> {
        let sequences = Tensor::f_zeros([2, 1], (Kind::Int64, tch::Device::Cpu))?;
        let ends = |limit| -> Result<Vec<bool>> {
            Ok(Vec::try_from(&MaxTime::new(limit).ends(&sequences)?)?)
        };
        assert_eq!(ends(Duration::ZERO)?, [true, true]);
        assert_eq!(ends(Duration::from_secs(3600))?, [false, false]);
        Ok(())
    }
}
