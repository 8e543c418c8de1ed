//! Beam search: the best sequences as a whole, not the best next token.

use accelerate::Result;
use tch::{Kind, Tensor};

use super::generate::{Generated, Run};
use super::session::Started;
use super::{EarlyStopping, GenerationConfig};

/// Added to the score of what must not be chosen.
const OUT: f64 = -1.0e9;

/// Follows the best `num_beams` sequences of each prompt, and keeps the best that ended.
///
/// # Source
/// `GenerationMixin._beam_search` of `transformers`.
pub(super) fn search(
    started: Started<'_>,
    config: &GenerationConfig,
    run: &Run<'_>,
) -> Result<Generated> {
    let Started {
        mut session,
        sequences: prompt,
        mut logits,
        longest,
    } = started;
    let mut search = Search::new(&prompt, longest, config, run)?;
    loop {
        let step = search.advance(&logits, run)?;
        if step.done {
            run.synced.wait(&session, &step.tokens)?;
            return search.finish();
        }
        run.synced.go_on()?;
        session.reorder(&step.sources)?;
        logits = session.step(&step.tokens)?;
    }
}

/// The sequences of one search. Shapes are `[prompts, beams, ..]`.
struct Search<'c> {
    config: &'c GenerationConfig,
    beams: i64,
    prompts: i64,
    prompt_tokens: i64,
    longest: i64,
    filler: i64,
    running: Running,
    finished: Finished,
    /// Whether a prompt's running sequences can still beat its finished ones, `[prompts, 1]`.
    hopeful: Tensor,
    /// True for the best `beams` of the candidates.
    first: Tensor,
}

/// The sequences that go on.
struct Running {
    /// `[prompts, beams, tokens]`.
    sequences: Tensor,
    /// The sum of log probabilities.
    scores: Tensor,
}

/// The best sequences that ended; places not taken yet have the score [`OUT`].
struct Finished {
    /// `[prompts, beams, longest]`, filled up.
    sequences: Tensor,
    /// With the penalty for length.
    scores: Tensor,
    /// How many tokens are new.
    lengths: Tensor,
    /// Whether the place is taken.
    taken: Tensor,
}

/// More sequences than can go on, the best first: enough to go on with if many of them end.
struct Candidates {
    sequences: Tensor,
    scores: Tensor,
    /// The beam that each comes from, counted over all prompts.
    sources: Tensor,
    /// Whether each ends here.
    ended: Tensor,
}

/// What the model reads next.
struct Step {
    /// The row of the cache that each beam goes on from, `[prompts * beams]`.
    sources: Tensor,
    /// The newest token of each beam, `[prompts * beams, 1]`.
    tokens: Tensor,
    done: bool,
}

impl<'c> Search<'c> {
    fn new(
        prompt: &Tensor,
        longest: i64,
        config: &'c GenerationConfig,
        run: &Run<'_>,
    ) -> Result<Self> {
        let beams = config.num_beams;
        let (rows, prompt_tokens) = prompt.size2()?;
        let prompts = rows / beams;
        let device = prompt.device();
        let sequences = prompt.f_view([prompts, beams, prompt_tokens])?;
        let filler = config.filler().filter(|_| run.has_ends()).unwrap_or(-1);
        let float = (Kind::Float, device);
        // All beams of a prompt begin alike, so only the first may go on at first.
        let scores = Tensor::f_full([prompts, beams], OUT, float)?;
        let _same = scores.f_select(1, 0)?.f_fill_(0.0)?;
        let filled = Tensor::f_full([prompts, beams, longest], filler, (Kind::Int64, device))?;
        filled.f_narrow(2, 0, prompt_tokens)?.f_copy_(&sequences)?;
        let mut search = Self {
            config,
            beams,
            prompts,
            prompt_tokens,
            longest,
            filler,
            running: Running { sequences, scores },
            finished: Finished {
                sequences: filled,
                scores: Tensor::f_full([prompts, beams], OUT, float)?,
                lengths: Tensor::f_zeros([prompts, beams], (Kind::Int64, device))?,
                taken: Tensor::f_zeros([prompts, beams], (Kind::Bool, device))?,
            },
            hopeful: Tensor::f_ones([prompts, 1], (Kind::Bool, device))?,
            first: Tensor::new(),
        };
        let places = Tensor::f_arange(search.candidates(), (Kind::Int64, device))?;
        search.first = places.f_lt(beams)?;
        Ok(search)
    }

    fn candidates(&self) -> i64 {
        (self.config.eos_token_id.len() as i64 + 1).max(2) * self.beams
    }

    fn tokens(&self) -> Result<i64> {
        Ok(self.running.sequences.size3()?.2)
    }

    /// One more token for every beam.
    fn advance(&mut self, logits: &Tensor, run: &Run<'_>) -> Result<Step> {
        let candidates = self.extend(logits, run)?;
        let (sources, tokens) = self.go_on(&candidates)?;
        self.keep_finished(&candidates)?;
        self.update_hope()?;
        Ok(Step {
            sources,
            tokens,
            done: self.is_done(&candidates)?,
        })
    }

    fn extend(&self, logits: &Tensor, run: &Run<'_>) -> Result<Candidates> {
        let (prompts, beams, tokens) = (self.prompts, self.beams, self.tokens()?);
        let flat = self.running.sequences.f_reshape([-1, tokens])?;
        let scores = run.processed(&flat, logits.f_log_softmax(-1, None)?)?;
        let vocab_size = scores.size2()?.1;
        let sums = scores
            .f_view([prompts, beams, vocab_size])?
            .f_add(&self.running.scores.f_unsqueeze(-1)?)?
            .f_view([prompts, -1])?;
        let (scores, places) = self.best(&sums)?;
        let beam = places.f_floor_divide_scalar(vocab_size)?;
        let token = places.f_remainder(vocab_size)?;
        let before = gather(&self.running.sequences, &beam)?;
        let sequences = Tensor::f_cat(&[before, token.f_unsqueeze(-1)?], -1)?;
        let flat = sequences.f_view([-1, tokens + 1])?;
        let ended = if tokens + 1 >= self.longest {
            scores.f_ones_like()?.f_to_kind(Kind::Bool)?
        } else {
            run.ended(&flat)?.f_view([prompts, -1])?
        };
        let offsets = Tensor::f_arange(prompts, (Kind::Int64, beam.device()))?
            .f_mul_scalar(beams)?
            .f_unsqueeze(-1)?;
        Ok(Candidates {
            sequences,
            scores,
            sources: beam.f_add(&offsets)?,
            ended,
        })
    }

    /// The candidates among all continuations of each prompt: the best, or drawn without
    /// replacement and then sorted.
    fn best(&self, sums: &Tensor) -> Result<(Tensor, Tensor)> {
        let count = self.candidates();
        if !self.config.do_sample {
            return Ok(sums.f_topk(count, -1, true, true)?);
        }
        let drawn = sums.f_softmax(-1, None)?.f_multinomial(count, false)?;
        let (scores, order) = sums.f_gather(1, &drawn, false)?.f_sort(-1, true)?;
        Ok((scores, drawn.f_gather(-1, &order, false)?))
    }

    /// The best candidates that did not end become the beams.
    fn go_on(&mut self, candidates: &Candidates) -> Result<(Tensor, Tensor)> {
        let scores = candidates.scores.f_add(&penalty(&candidates.ended)?)?;
        let (scores, places) = scores.f_topk(self.beams, -1, true, true)?;
        let sequences = gather(&candidates.sequences, &places)?;
        let sources = candidates.sources.f_gather(1, &places, false)?;
        let tokens = sequences.size3()?.2;
        let newest = sequences.f_select(2, tokens - 1)?.f_reshape([-1, 1])?;
        self.running = Running { sequences, scores };
        Ok((sources.f_reshape([-1])?, newest))
    }

    /// Candidates that ended take the places of finished sequences that scored less.
    fn keep_finished(&mut self, candidates: &Candidates) -> Result<()> {
        let new = candidates.sequences.size3()?.2 - self.prompt_tokens;
        let ended = candidates.ended.f_logical_and(&self.first)?;
        let mut scores = candidates
            .scores
            .f_div_scalar((new as f64).powf(self.config.length_penalty))?;
        if self.config.early_stopping == EarlyStopping::Complete {
            let full = self.finished.taken.f_all_dim(-1, true)?;
            scores = scores.f_add(&penalty(&full)?)?;
        }
        scores = scores.f_add(&penalty(&self.hopeful.f_logical_not()?)?)?;
        scores = scores.f_add(&penalty(&ended.f_logical_not()?)?)?;

        let left = self.longest - candidates.sequences.size3()?.2;
        let filled = candidates
            .sequences
            .f_pad([0, left], "constant", self.filler as f64)?;
        let lengths = candidates.sources.f_full_like(new)?;
        let old = &self.finished;
        let merged = Tensor::f_cat(&[&old.scores, &scores], 1)?;
        let (scores, places) = merged.f_topk(self.beams, -1, true, true)?;
        let pick = |old: &Tensor, new: &Tensor| -> Result<Tensor> {
            Ok(Tensor::f_cat(&[old, new], 1)?.f_gather(1, &places, false)?)
        };
        self.finished = Finished {
            sequences: gather(&Tensor::f_cat(&[&old.sequences, &filled], 1)?, &places)?,
            lengths: pick(&old.lengths, &lengths)?,
            taken: pick(&old.taken, &ended)?,
            scores,
        };
        Ok(())
    }

    /// Whether the best running sequence could beat the worst finished one.
    fn update_hope(&mut self) -> Result<()> {
        let penalty = self.config.length_penalty;
        let new = match self.config.early_stopping {
            EarlyStopping::Never if penalty > 0.0 => self.longest,
            _ => self.tokens()?,
        } - self.prompt_tokens;
        let best = self
            .running
            .scores
            .f_narrow(1, 0, 1)?
            .f_div_scalar((new as f64).powf(penalty))?;
        let least = self
            .finished
            .scores
            .f_amin([1i64].as_slice(), true)?
            .f_expand_as(&self.finished.scores)?;
        let worst = least.f_masked_fill(&self.finished.taken.f_logical_not()?, OUT)?;
        let better = best.f_gt_tensor(&worst)?.f_any_dim(-1, true)?;
        self.hopeful = self.hopeful.f_logical_and(&better)?;
        Ok(())
    }

    fn is_done(&self, candidates: &Candidates) -> Result<bool> {
        let yes = |flag: Tensor| -> Result<bool> { Ok(flag.f_int64_value(&[])? != 0) };
        let complete = self.config.early_stopping == EarlyStopping::Complete;
        Ok(yes(candidates.ended.f_all()?)?
            || !yes(self.hopeful.f_any()?)?
            || (complete && yes(self.finished.taken.f_all()?)?))
    }

    fn finish(self) -> Result<Generated> {
        let given = self.config.num_return_sequences;
        let best = |tensor: &Tensor| tensor.f_narrow(1, 0, given);
        let new = best(&self.finished.lengths)?.f_max()?.f_int64_value(&[])?;
        let tokens = self.prompt_tokens + new;
        Ok(Generated {
            sequences: best(&self.finished.sequences)?
                .f_narrow(2, 0, tokens)?
                .f_reshape([-1, tokens])?,
            scores: Some(best(&self.finished.scores)?.f_reshape([-1])?),
            prompt_tokens: self.prompt_tokens,
        })
    }
}

/// [`OUT`] where the flag is set.
fn penalty(flag: &Tensor) -> Result<Tensor> {
    Ok(flag.f_to_kind(Kind::Float)?.f_mul_scalar(OUT)?)
}

/// The sequences at these places, `[prompts, chosen]`, of each prompt.
fn gather(sequences: &Tensor, places: &Tensor) -> Result<Tensor> {
    let tokens = sequences.size3()?.2;
    let (prompts, chosen) = places.size2()?;
    let places = places
        .f_unsqueeze(-1)?
        .f_expand([prompts, chosen, tokens], false)?;
    Ok(sequences.f_gather(1, &places, false)?)
}
