//! What tokens are drawn from.

use accelerate::Result;
use tch::Tensor;

use super::LogitsProcessor;

pub(super) struct Temperature {
    pub(super) by: f64,
}

impl LogitsProcessor for Temperature {
    fn process(&self, _sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        Ok(scores.f_div_scalar(self.by)?)
    }
}

/// Forbids all but the likeliest tokens.
pub(super) struct TopK {
    pub(super) count: i64,
}

impl LogitsProcessor for TopK {
    fn process(&self, _sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        let less = below_best(&scores, self.count)?;
        Ok(scores.f_masked_fill(&less, f64::NEG_INFINITY)?)
    }
}

/// Forbids the least likely tokens that together are less likely than `1 - mass`.
pub(super) struct TopP {
    pub(super) mass: f64,
    pub(super) keep: i64,
}

impl LogitsProcessor for TopP {
    fn process(&self, _sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        let (sorted, places) = scores.f_sort(-1, false)?;
        let sums = sorted.f_softmax(-1, None)?.f_cumsum(-1, None)?;
        let out = sums.f_le(1.0 - self.mass)?;
        forbid(&scores, &out, &places, self.keep)
    }
}

/// Puts numbers in the place of what is none: 0, or the largest and the smallest there are.
pub(super) struct Finite;

impl LogitsProcessor for Finite {
    fn process(&self, _sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        Ok(scores.f_nan_to_num(0.0, None::<f64>, None::<f64>)?)
    }
}

/// Makes log probabilities of the scores.
pub(super) struct Normalize;

impl LogitsProcessor for Normalize {
    fn process(&self, _sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        Ok(scores.f_log_softmax(-1, None)?)
    }
}

/// Which scores are below the `count` best, `[rows, vocab_size]` of bool.
pub(super) fn below_best(scores: &Tensor, count: i64) -> Result<Tensor> {
    let count = count.min(scores.size2()?.1);
    let best = scores.f_topk(count, -1, true, true)?.0;
    let least = best.f_narrow(1, count - 1, 1)?;
    Ok(scores.f_lt_tensor(&least)?)
}

/// Forbids what `out` says of scores in rising order, but for the last `keep` of them.
pub(super) fn forbid(scores: &Tensor, out: &Tensor, places: &Tensor, keep: i64) -> Result<Tensor> {
    let vocab_size = scores.size2()?.1;
    let kept = keep.min(vocab_size);
    let _same = out.f_narrow(1, vocab_size - kept, kept)?.f_fill_(0)?;
    let mask = out.f_scatter(1, places, out)?;
    Ok(scores.f_masked_fill(&mask, f64::NEG_INFINITY)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_becomes_one() -> Result<()> {
        let scores = Tensor::f_from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.5])?
            .f_view([1, 4])?;
        let finite = Finite.process(&scores, scores.shallow_clone())?;
        let found: Vec<f32> = Vec::try_from(&finite.f_reshape([-1])?)?;
        assert_eq!(found, [0.0, f32::MAX, f32::MIN, 1.5]);
        Ok(())
    }
}
