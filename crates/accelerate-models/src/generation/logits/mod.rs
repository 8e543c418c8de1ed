//! What happens to scores before a token is chosen.
//!
//! | file | room for |
//! | --- | --- |
//! | `repetition` | what was there before |
//! | `phrases` | runs of tokens that are made likelier or forbidden |
//! | `ends` | single tokens that may not come, or have to |
//! | `sampling` | what tokens are drawn from |
//! | `least` | which tokens are too unlikely to be drawn |

mod ends;
mod least;
mod phrases;
mod repetition;
mod sampling;

use accelerate::Result;
use tch::{Kind, Tensor};

use self::ends::{Banned, Decay, FirstToken, LastToken, MinLength};
use self::least::{EpsilonCutoff, EtaCutoff, MinP, TopH, Typical};
use self::phrases::{PhraseBias, bad_words};
use self::repetition::{NoRepeatNgrams, NoRepeatPromptNgrams, PromptRepetition, RepetitionPenalty};
use self::sampling::{Finite, Normalize, Temperature, TopK, TopP};
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

/// What processors have to know about the start of a generation.
#[derive(Debug, Clone, Copy)]
pub struct PromptFacts<'a> {
    /// How many tokens each sequence has before the first new one.
    pub tokens: i64,
    /// How many tokens a sequence has at most; a forced end token is the last of these.
    pub longest: i64,
    /// How many tokens of padding each row begins with, `[rows]`; absent where there are none.
    pub padding: Option<&'a Tensor>,
    /// The prompt as it was given, `[prompts, tokens]` of int64: the encoder's input where there is
    /// an encoder. Several rows of the sequences may belong to one prompt, one after another. Keys
    /// that begin with `encoder_` have no effect where it is absent.
    pub prompt_ids: Option<&'a Tensor>,
}

impl PromptFacts<'_> {
    /// A prompt of so many tokens that is continued up to so many, and nothing else.
    pub fn new(tokens: i64, longest: i64) -> Self {
        Self {
            tokens,
            longest,
            padding: None,
            prompt_ids: None,
        }
    }
}

/// Everything that a configuration asks for, in the order it happens: for a loop of one's own.
///
/// # Errors
/// If memory is short.
pub fn logits_processors(
    config: &GenerationConfig,
    prompt: &PromptFacts<'_>,
) -> Result<Vec<Box<dyn LogitsProcessor>>> {
    let (mut list, warpers) = processors(config, prompt)?;
    list.extend(warpers);
    Ok(list)
}

/// Processors in the order they run.
type List = Vec<Box<dyn LogitsProcessor>>;

/// What a configuration asks for, in the order of the original: first what holds always, then
/// what changes the distribution that tokens are drawn from.
pub(super) fn processors(
    config: &GenerationConfig,
    prompt: &PromptFacts<'_>,
) -> Result<(List, List)> {
    let mut list = List::new();
    before_length(config, prompt, &mut list)?;
    about_ends(config, prompt, &mut list);
    let mut warpers = if config.do_sample {
        warpers(config)
    } else {
        List::new()
    };
    if config.renormalize_logits {
        warpers.push(Box::new(Normalize));
    }
    Ok((list, warpers))
}

/// Repetition and runs of tokens.
fn before_length(
    config: &GenerationConfig,
    prompt: &PromptFacts<'_>,
    list: &mut List,
) -> Result<()> {
    if !config.sequence_bias.is_empty() {
        list.push(Box::new(PhraseBias::new(&config.sequence_bias)?));
    }
    let prompt_penalty = config.encoder_repetition_penalty.filter(|&by| by != 1.0);
    if let Some((penalty, ids)) = prompt_penalty.zip(prompt.prompt_ids) {
        list.push(Box::new(PromptRepetition::new(penalty, ids)));
    }
    if config.repetition_penalty != 1.0 {
        list.push(Box::new(RepetitionPenalty {
            penalty: config.repetition_penalty,
            padding: prompt.padding.map(Tensor::shallow_clone),
        }));
    }
    if config.no_repeat_ngram_size > 0 {
        list.push(Box::new(NoRepeatNgrams {
            size: config.no_repeat_ngram_size,
        }));
    }
    let prompt_ngrams = config.encoder_no_repeat_ngram_size.filter(|&size| size > 0);
    if let Some((size, ids)) = prompt_ngrams.zip(prompt.prompt_ids) {
        list.push(Box::new(NoRepeatPromptNgrams::new(size, ids)));
    }
    if let Some(words) = bad_words(config) {
        list.push(Box::new(PhraseBias::new(&words)?));
    }
    Ok(())
}

/// Where sequences may end and begin, and tokens that never come.
fn about_ends(config: &GenerationConfig, prompt: &PromptFacts<'_>, list: &mut List) {
    let shortest = config.shortest(prompt.tokens);
    if shortest > prompt.tokens && !config.eos_token_id.is_empty() {
        list.push(Box::new(MinLength {
            tokens: shortest,
            ends: config.eos_token_id.clone(),
        }));
    }
    if let Some(token) = config.forced_bos_token_id {
        list.push(Box::new(FirstToken { token }));
    }
    if !config.forced_eos_token_id.is_empty() {
        list.push(Box::new(LastToken {
            longest: prompt.longest,
            ends: config.forced_eos_token_id.clone(),
        }));
    }
    if config.remove_invalid_values {
        list.push(Box::new(Finite));
    }
    if let Some((start, factor)) = config.exponential_decay_length_penalty {
        list.push(Box::new(Decay {
            start: prompt.tokens.saturating_add(start),
            factor,
            ends: config.eos_token_id.clone(),
        }));
    }
    if !config.suppress_tokens.is_empty() {
        list.push(Box::new(Banned {
            tokens: config.suppress_tokens.clone(),
            only_at: None,
        }));
    }
    if !config.begin_suppress_tokens.is_empty() {
        // A forced first token is no beginning yet.
        let forced = prompt.tokens <= 1 && config.forced_bos_token_id.is_some();
        list.push(Box::new(Banned {
            tokens: config.begin_suppress_tokens.clone(),
            only_at: Some(prompt.tokens + i64::from(forced)),
        }));
    }
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
    if let Some(part) = config.top_h {
        list.push(Box::new(TopH { part }));
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
    if let Some(mass) = config.typical_p.filter(|&mass| mass < 1.0) {
        list.push(Box::new(Typical { mass, keep }));
    }
    if let Some(least) = config.epsilon_cutoff.filter(|&least| least > 0.0) {
        list.push(Box::new(EpsilonCutoff { least, keep }));
    }
    if let Some(least) = config.eta_cutoff.filter(|&least| least > 0.0) {
        list.push(Box::new(EtaCutoff { least, keep }));
    }
    list
}

/// Forbids tokens; those that the vocabulary does not have are left out, as some configurations
/// name such.
fn without(scores: &Tensor, tokens: &[i64]) -> Result<Tensor> {
    let tokens = known(scores, tokens)?;
    Ok(scores.f_index_fill(1, &tokens, f64::NEG_INFINITY)?)
}

/// The tokens that there are scores for, `[tokens]`, where the scores are.
fn known(scores: &Tensor, tokens: &[i64]) -> Result<Tensor> {
    let vocab_size = scores.size2()?.1;
    let range = 0..vocab_size;
    let known: Vec<i64> = tokens
        .iter()
        .copied()
        .filter(|token| range.contains(token))
        .collect();
    Ok(Tensor::f_from_slice(&known)?.f_to_device(scores.device())?)
}

/// Forbids the token of each place that is set in `matches`.
///
/// # Shapes
/// `tokens` and `matches`: `[rows, places]`; the tokens may be outside the vocabulary.
fn without_matches(scores: &Tensor, tokens: &Tensor, matches: &Tensor) -> Result<Tensor> {
    let (rows, vocab_size) = scores.size2()?;
    // What does not match forbids a token that is not there.
    let forbidden = tokens
        .f_clamp_max(vocab_size)?
        .f_masked_fill(&matches.f_logical_not()?, vocab_size)?;
    let yes = forbidden.f_ones_like()?.f_to_kind(Kind::Bool)?;
    let mask = Tensor::f_zeros([rows, vocab_size + 1], (Kind::Bool, scores.device()))?
        .f_scatter(1, &forbidden, &yes)?
        .f_narrow(1, 0, vocab_size)?;
    Ok(scores.f_masked_fill(&mask, f64::NEG_INFINITY)?)
}
