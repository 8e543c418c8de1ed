//! Which tokens are too unlikely to be drawn.

use accelerate::Result;
use tch::{Kind, Tensor};

use super::LogitsProcessor;
use super::sampling::{below_best, forbid};

/// Forbids tokens that are less likely than a part of the likeliest.
pub(super) struct MinP {
    pub(super) part: f64,
    pub(super) keep: i64,
}

impl LogitsProcessor for MinP {
    fn process(&self, _sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        let likely = scores.f_softmax(-1, None)?;
        let most = likely.f_amax([-1i64].as_slice(), true)?;
        let less = likely.f_lt_tensor(&most.f_mul_scalar(self.part)?)?;
        let places = scores.f_argsort(-1, false)?;
        let out = less.f_gather(-1, &places, false)?;
        forbid(&scores, &out, &places, self.keep)
    }
}

/// Of how many of the likeliest tokens [`TopH`] may keep some.
const MOST: i64 = 100;

/// Keeps the likeliest tokens whose entropy together is at most a part of that of the likeliest
/// hundred, and the likeliest always.
pub(super) struct TopH {
    pub(super) part: f64,
}

impl LogitsProcessor for TopH {
    fn process(&self, _sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        let count = MOST.min(scores.size2()?.1);
        let (best, places) = scores.f_topk(count, -1, true, true)?;
        let limit = entropy(&best)?.f_mul_scalar(self.part)?;
        let likely = best.f_softmax(-1, None)?;
        let sums = likely
            .f_neg()?
            .f_mul(&likely.f_log()?)?
            .f_cumsum(-1, None)?;
        let kept = sums.f_le_tensor(&limit)?;
        let _same = kept.f_narrow(1, 0, 1)?.f_fill_(1)?;
        let out = scores.f_ones_like()?.f_to_kind(Kind::Bool)?.f_scatter(
            1,
            &places,
            &kept.f_logical_not()?,
        )?;
        Ok(scores.f_masked_fill(&out, f64::NEG_INFINITY)?)
    }
}

/// Keeps the tokens that surprise about as much as is to be expected, until together they have
/// the probability `mass`.
pub(super) struct Typical {
    pub(super) mass: f64,
    pub(super) keep: i64,
}

impl LogitsProcessor for Typical {
    fn process(&self, _sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        let vocab_size = scores.size2()?.1;
        let logs = scores.f_log_softmax(-1, None)?;
        let expected = logs
            .f_mul(&logs.f_exp()?)?
            .f_nansum([-1i64].as_slice(), true, None)?
            .f_neg()?;
        let apart = logs.f_neg()?.f_sub(&expected)?.f_abs()?;
        let (sorted, places) = apart.f_sort(-1, false)?;
        let sums = scores
            .f_gather(-1, &places, false)?
            .f_softmax(-1, None)?
            .f_cumsum(-1, None)?;
        let last = sums
            .f_lt(self.mass)?
            .f_sum_dim_intlist([1i64].as_slice(), true, Kind::Int64)?
            .f_clamp_max(vocab_size - 1)?;
        let out = sorted.f_gt_tensor(&sorted.f_gather(1, &last, false)?)?;
        let _same = out.f_narrow(1, 0, self.keep.min(vocab_size))?.f_fill_(0)?;
        let out = out.f_scatter(1, &places, &out)?;
        Ok(scores.f_masked_fill(&out, f64::NEG_INFINITY)?)
    }
}

/// Forbids tokens below a probability, but for the `keep` likeliest.
pub(super) struct EpsilonCutoff {
    pub(super) least: f64,
    pub(super) keep: i64,
}

impl LogitsProcessor for EpsilonCutoff {
    fn process(&self, _sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        let out = scores.f_softmax(-1, None)?.f_lt(self.least)?;
        cut(&scores, &out, self.keep)
    }
}

/// Forbids tokens below a probability that is lower where the next token is less certain.
pub(super) struct EtaCutoff {
    pub(super) least: f64,
    pub(super) keep: i64,
}

impl LogitsProcessor for EtaCutoff {
    fn process(&self, _sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        let root = f64::from((self.least as f32).sqrt());
        let least = entropy(&scores)?
            .f_neg()?
            .f_exp()?
            .f_mul_scalar(root)?
            .f_clamp_max(self.least)?;
        let out = scores.f_softmax(-1, None)?.f_lt_tensor(&least)?;
        cut(&scores, &out, self.keep)
    }
}

fn cut(scores: &Tensor, out: &Tensor, keep: i64) -> Result<Tensor> {
    let out = out.f_logical_and(&below_best(scores, keep)?)?;
    Ok(scores.f_masked_fill(&out, f64::NEG_INFINITY)?)
}

/// How uncertain the next token is, in nats, `[rows, 1]`.
fn entropy(scores: &Tensor) -> Result<Tensor> {
    // What is impossible adds nothing, and nothing times an infinity is no number.
    let logs = scores
        .f_log_softmax(-1, None)?
        .f_clamp_min(f64::from(f32::MIN))?;
    let likely = scores.f_softmax(-1, None)?;
    Ok(logs
        .f_mul(&likely)?
        .f_sum_dim_intlist([-1i64].as_slice(), true, None)?
        .f_neg()?)
}
