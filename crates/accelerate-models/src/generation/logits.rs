//! What happens to scores before a token is chosen.

use accelerate::Result;
use tch::{Kind, Tensor};

use super::GenerationConfig;

/// Changes the scores of the next token.
///
/// # Source
/// `LogitsProcessor` of `transformers`.
pub trait LogitsProcessor {
    /// The new scores.
    ///
    /// # Shapes
    /// - `sequences`: `[rows, tokens]` of int64, prompt and padding included
    /// - `scores`: `[rows, vocab_size]` of float32; logits, or log probabilities in beam search
    /// - output: as `scores`
    ///
    /// # Errors
    /// What the implementation reports; generation ends with it.
    fn process(&self, sequences: &Tensor, scores: Tensor) -> Result<Tensor>;
}

/// Everything that a configuration asks for, in the order it happens: for a loop of one's own.
///
/// `prompt` is the length of the prompt; `padding` is how many tokens of padding each row begins
/// with, `[rows]`, absent where there are none.
pub fn logits_processors(
    config: &GenerationConfig,
    prompt: i64,
    padding: Option<&Tensor>,
) -> Vec<Box<dyn LogitsProcessor>> {
    let (mut list, warpers) = processors(config, prompt, padding);
    list.extend(warpers);
    list
}

/// Processors in the order they run.
type List = Vec<Box<dyn LogitsProcessor>>;

/// What a configuration asks for, in the order of the original: first what holds always, then
/// what changes the distribution that tokens are drawn from.
pub(super) fn processors(
    config: &GenerationConfig,
    prompt: i64,
    padding: Option<&Tensor>,
) -> (List, List) {
    let mut list = List::new();
    if config.repetition_penalty != 1.0 {
        list.push(Box::new(RepetitionPenalty {
            penalty: config.repetition_penalty,
            padding: padding.map(Tensor::shallow_clone),
        }));
    }
    if config.no_repeat_ngram_size > 0 {
        list.push(Box::new(NoRepeatNgrams {
            size: config.no_repeat_ngram_size,
        }));
    }
    let shortest = config.shortest(prompt);
    if shortest > prompt && !config.eos_token_id.is_empty() {
        list.push(Box::new(MinLength {
            tokens: shortest,
            ends: config.eos_token_id.clone(),
        }));
    }
    let warpers = if config.do_sample {
        warpers(config)
    } else {
        List::new()
    };
    (list, warpers)
}

fn warpers(config: &GenerationConfig) -> List {
    let mut list = List::new();
    // Beams need tokens to go on with besides those that end them.
    let keep = match config.num_beams {
        1 => 1,
        _ => config.eos_token_id.len().max(1) as i64 + 1,
    };
    if config.temperature != 1.0 {
        list.push(Box::new(Temperature {
            by: config.temperature,
        }));
    }
    if config.top_k > 0 {
        list.push(Box::new(TopK {
            count: config.top_k.max(keep),
        }));
    }
    if config.top_p < 1.0 {
        list.push(Box::new(TopP {
            mass: config.top_p,
            keep,
        }));
    }
    if let Some(part) = config.min_p {
        list.push(Box::new(MinP { part, keep }));
    }
    list
}

/// Makes tokens that are there already less likely.
struct RepetitionPenalty {
    penalty: f64,
    padding: Option<Tensor>,
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
        // One more place takes what is to stay as it is.
        let wide = scores.f_pad([0, 1], "constant", 0.0)?;
        let old = wide.f_gather(1, &seen, false)?;
        let lower = old.f_mul_scalar(self.penalty)?;
        let new = lower.f_where_self(&old.f_lt(0)?, &old.f_div_scalar(self.penalty)?)?;
        Ok(wide.f_scatter(1, &seen, &new)?.f_narrow(1, 0, vocab_size)?)
    }
}

/// Forbids each token that would complete a run of tokens that is there already.
struct NoRepeatNgrams {
    size: i64,
}

impl LogitsProcessor for NoRepeatNgrams {
    fn process(&self, sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        let tokens = sequences.size2()?.1;
        if tokens < self.size {
            return Ok(scores);
        }
        let (rows, vocab_size) = scores.size2()?;
        let before = self.size - 1;
        let runs = sequences.f_unfold(1, self.size, 1)?;
        let end = sequences.f_narrow(1, tokens - before, before)?;
        let same = runs
            .f_narrow(2, 0, before)?
            .f_eq_tensor(&end.f_unsqueeze(1)?)?
            .f_all_dim(-1, false)?;
        // A run that does not match forbids a token that is not there.
        let last = runs.f_select(2, before)?;
        let forbidden = last.f_masked_fill(&same.f_logical_not()?, vocab_size)?;
        let yes = forbidden.f_ones_like()?.f_to_kind(Kind::Bool)?;
        let mask = Tensor::f_zeros([rows, vocab_size + 1], (Kind::Bool, scores.device()))?
            .f_scatter(1, &forbidden, &yes)?
            .f_narrow(1, 0, vocab_size)?;
        Ok(scores.f_masked_fill(&mask, f64::NEG_INFINITY)?)
    }
}

/// Forbids end tokens until a sequence is long enough.
struct MinLength {
    tokens: i64,
    ends: Vec<i64>,
}

impl LogitsProcessor for MinLength {
    fn process(&self, sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        if sequences.size2()?.1 >= self.tokens {
            return Ok(scores);
        }
        // Some configurations name ends that the vocabulary does not have.
        let vocab_size = scores.size2()?.1;
        let known: Vec<i64> = self
            .ends
            .iter()
            .copied()
            .filter(|end| (0..vocab_size).contains(end))
            .collect();
        let ends = Tensor::f_from_slice(&known)?.f_to_device(scores.device())?;
        Ok(scores.f_index_fill(1, &ends, f64::NEG_INFINITY)?)
    }
}

struct Temperature {
    by: f64,
}

impl LogitsProcessor for Temperature {
    fn process(&self, _sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        Ok(scores.f_div_scalar(self.by)?)
    }
}

/// Forbids all but the likeliest tokens.
struct TopK {
    count: i64,
}

impl LogitsProcessor for TopK {
    fn process(&self, _sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        let count = self.count.min(scores.size2()?.1);
        let best = scores.f_topk(count, -1, true, true)?.0;
        let least = best.f_narrow(1, count - 1, 1)?;
        let less = scores.f_lt_tensor(&least)?;
        Ok(scores.f_masked_fill(&less, f64::NEG_INFINITY)?)
    }
}

/// Forbids the least likely tokens that together are less likely than `1 - mass`.
struct TopP {
    mass: f64,
    keep: i64,
}

impl LogitsProcessor for TopP {
    fn process(&self, _sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        let (sorted, places) = scores.f_sort(-1, false)?;
        let sums = sorted.f_softmax(-1, None)?.f_cumsum(-1, None)?;
        let out = sums.f_le(1.0 - self.mass)?;
        forbid(&scores, &out, &places, self.keep)
    }
}

/// Forbids tokens that are less likely than a part of the likeliest.
struct MinP {
    part: f64,
    keep: i64,
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

/// Forbids what `out` says of scores in rising order, but for the last `keep` of them.
fn forbid(scores: &Tensor, out: &Tensor, places: &Tensor, keep: i64) -> Result<Tensor> {
    let vocab_size = scores.size2()?.1;
    let kept = keep.min(vocab_size);
    let _same = out.f_narrow(1, vocab_size - kept, kept)?.f_fill_(0)?;
    let mask = out.f_scatter(1, places, out)?;
    Ok(scores.f_masked_fill(&mask, f64::NEG_INFINITY)?)
}
