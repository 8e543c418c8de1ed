//! What a model does to take part in generation.

use accelerate::nn::Module;
use accelerate::{Error, Result};
use tch::Tensor;

use super::KeyValueCache;

/// How a model turns a prompt into new tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// The prompt is continued: GPT-2, Llama, Mixtral.
    Decoder,
    /// The prompt is read by an encoder, and a decoder writes from its start token: T5.
    EncoderDecoder,
}

/// The facts about a model that generation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GenerationProfile {
    /// Continues the prompt, or reads it with an encoder.
    pub architecture: Architecture,
    /// How many logits there are for each position.
    pub vocab_size: i64,
    /// How many decoder layers keep keys and values.
    pub num_layers: usize,
    /// The longest sequence, in tokens; none where the model sets no limit.
    pub max_positions: Option<i64>,
}

/// What an encoder gives to its decoder: made once for a prompt, used by every step.
#[derive(Debug)]
pub struct EncoderStates {
    /// The state of each token of the prompt, `[rows, tokens, width]`.
    pub last_hidden_state: Tensor,
    /// True where there is a token, `[rows, tokens]`; absent where nothing is padded.
    pub attention_mask: Option<Tensor>,
}

impl EncoderStates {
    /// Each row `times` times, one after another: what several beams of one prompt read.
    ///
    /// # Errors
    /// If memory is short.
    pub fn repeat_rows(&self, times: i64) -> Result<Self> {
        let repeat =
            |tensor: &Tensor| tensor.f_repeat_interleave_self_int(times, Some(0), None::<i64>);
        Ok(Self {
            last_hidden_state: repeat(&self.last_hidden_state)?,
            attention_mask: self.attention_mask.as_ref().map(repeat).transpose()?,
        })
    }
}

/// The input of one step: the tokens that the cache does not know yet.
///
/// # Shapes
/// With `new` tokens after `cached` ones: the first step has the whole prompt and an empty cache,
/// every later step one token.
#[derive(Debug)]
pub struct DecoderStep<'a> {
    /// The new tokens, `[rows, new]` of int64.
    pub input_ids: &'a Tensor,
    /// The position of each new token within its own text, `[rows, new]` or `[1, new]` of int64:
    /// padding on the left does not count, and has the position 0.
    pub position_ids: &'a Tensor,
    /// True where there is a token, `[rows, cached + new]` of bool; absent where nothing is
    /// padded, so that attention takes its faster kernel.
    pub attention_mask: Option<&'a Tensor>,
    /// Keys and values of the `cached` tokens; the step adds those of its own.
    pub cache: &'a KeyValueCache,
    /// The encoder's states, for a model that has one.
    pub encoder: Option<&'a EncoderStates>,
}

/// A model that tells how likely each next token is.
///
/// [`generate`](super::generate) and the loops below it know models only through this trait, so a
/// model implements it once and has greedy search, sampling, beams and streaming. A step goes
/// through the model's [`call`](accelerate::nn::Forward::call), so that its hooks run.
pub trait GenerativeModel: Module {
    /// The sizes and the kind of the model.
    fn generation_profile(&self) -> GenerationProfile;

    /// Runs the encoder over a prompt, once for all steps.
    ///
    /// # Shapes
    /// - `input_ids`: `[rows, tokens]` of int64
    /// - `attention_mask`: `[rows, tokens]` of bool, absent where nothing is padded
    ///
    /// # Errors
    /// [`Error::Argument`] for a model without an encoder, which is what this says unless
    /// written; else what the encoder reports.
    fn encode(&self, input_ids: &Tensor, attention_mask: Option<&Tensor>) -> Result<EncoderStates> {
        let _unread = (input_ids, attention_mask);
        Err(Error::Argument {
            operation: "GenerativeModel::encode",
            expected: "a model with an encoder".to_owned(),
            found: format!("`{}`", self.class_name()),
        })
    }

    /// Reads the new tokens and gives the logits of what follows the last of them.
    ///
    /// Only the last position goes through the head: a long prompt costs one row of logits.
    ///
    /// # Shapes
    /// `[rows, vocab_size]`, in the model's own type.
    ///
    /// # Errors
    /// What the forward pass reports: an id outside the vocabulary, a sequence that is too long.
    fn next_token_logits(&self, step: &DecoderStep<'_>) -> Result<Tensor>;
}
