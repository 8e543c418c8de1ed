//! What goes into decoder models and what comes out.

use accelerate::tree::Tree;
use accelerate::{Error, Result};
use tch::{Kind, Tensor};

use super::CausalMask;
use super::mask::Extent;
use crate::generation::{DecoderStep, KeyValueCache, LayerCache};
use crate::token_ids::check_token_ids;

/// What a bare decoder takes.
///
/// # Shapes
/// With `new` tokens after `cached` ones; without a cache, `cached` is 0.
#[derive(Debug, Tree)]
pub struct DecoderInput {
    /// The token ids, `[rows, new]` of int64 or int32.
    pub input_ids: Tensor,
    /// Not 0 where there is a token, 0 where there is padding, `[rows, cached + new]`; absent
    /// where there is none. A mask of four dimensions is used as it is.
    pub attention_mask: Option<Tensor>,
    /// The position of each token, `[rows, new]` or `[1, new]`; counted from the first cached
    /// token where absent.
    pub position_ids: Option<Tensor>,
    /// Keys and values of tokens before, to which those of this pass are added.
    pub cache: Option<KeyValueCache>,
}

/// What a decoder with a language-modelling head takes.
///
/// ```
/// use accelerate_models::decoder::CausalLmInput;
/// use tch::Tensor;
///
/// let ids = Tensor::from_slice(&[5i64, 3, 2]).view([1, 3]);
/// let input = CausalLmInput::new(&ids).with_labels(&ids);
/// assert!(input.labels.is_some() && input.attention_mask.is_none());
/// ```
#[derive(Debug, Tree)]
pub struct CausalLmInput {
    /// The token ids, `[rows, new]` of int64 or int32.
    pub input_ids: Tensor,
    /// As for [`DecoderInput::attention_mask`].
    pub attention_mask: Option<Tensor>,
    /// As for [`DecoderInput::position_ids`].
    pub position_ids: Option<Tensor>,
    /// The tokens to predict, `[rows, new]`, at the same places as the input ids; -100 where
    /// none is. With them there is a loss.
    pub labels: Option<Tensor>,
    /// What the loss is divided with instead of the number of labels in this batch.
    pub num_items: Option<i64>,
    /// As for [`DecoderInput::cache`].
    pub cache: Option<KeyValueCache>,
    /// Gives logits for the last token only: all that generation needs.
    pub last_only: bool,
}

impl CausalLmInput {
    /// Tokens without padding, and nothing else.
    pub fn new(input_ids: &Tensor) -> Self {
        Self {
            input_ids: input_ids.shallow_clone(),
            attention_mask: None,
            position_ids: None,
            labels: None,
            num_items: None,
            cache: None,
            last_only: false,
        }
    }

    /// Adds the tokens to predict, most often the input ids themselves.
    #[must_use]
    pub fn with_labels(self, labels: &Tensor) -> Self {
        Self {
            labels: Some(labels.shallow_clone()),
            ..self
        }
    }

    /// Says where padding is.
    #[must_use]
    pub fn with_attention_mask(self, mask: &Tensor) -> Self {
        Self {
            attention_mask: Some(mask.shallow_clone()),
            ..self
        }
    }

    /// What the bare decoder takes of it.
    pub(crate) fn decoder_input(&self) -> DecoderInput {
        let handle = |tensor: &Option<Tensor>| tensor.as_ref().map(Tensor::shallow_clone);
        DecoderInput {
            input_ids: self.input_ids.shallow_clone(),
            attention_mask: handle(&self.attention_mask),
            position_ids: handle(&self.position_ids),
            cache: self.cache.clone(),
        }
    }
}

/// What a bare decoder gives.
#[derive(Debug, Tree)]
pub struct DecoderOutput {
    /// The state of each token, `[rows, new, hidden_size]`.
    pub last_hidden_state: Tensor,
}

/// What a decoder with a language-modelling head gives.
#[derive(Debug, Tree)]
pub struct CausalLmOutput {
    /// The loss, where labels were given.
    pub loss: Option<Tensor>,
    /// The score of each next token, `[rows, new, vocab_size]`, or `[rows, 1, vocab_size]` where
    /// only the last was asked for.
    pub logits: Tensor,
}

/// What a layer of a decoder and its attention take.
#[derive(Debug, Tree)]
pub struct DecoderLayerInput {
    /// The states, `[rows, new, hidden_size]`.
    pub hidden: Tensor,
    /// What each token may look at.
    pub mask: CausalMask,
    /// Cosines and sines of rotary positions, for models that have them.
    pub angles: Option<(Tensor, Tensor)>,
    /// The layer's part of the cache.
    pub cache: Option<LayerCache>,
}

impl DecoderLayerInput {
    /// The same input for other states.
    pub(crate) fn with_hidden(&self, hidden: Tensor) -> Self {
        use accelerate::nn::IntoInput;
        let handles =
            |(cosines, sines): &(Tensor, Tensor)| (cosines.shallow_clone(), sines.shallow_clone());
        Self {
            hidden,
            mask: (&self.mask).into_input(),
            angles: self.angles.as_ref().map(handles),
            cache: self.cache.clone(),
        }
    }
}

/// How far a model sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    pub(crate) model: &'static str,
    pub(crate) vocab_size: i64,
    /// The longest sequence; none where there is no end.
    pub(crate) max_positions: Option<i64>,
    /// How far back a token sees.
    pub(crate) window: Option<i64>,
}

/// Positions and mask of one pass.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) positions: Tensor,
    pub(crate) mask: CausalMask,
}

impl Prepared {
    /// Checks the input and finds out what every layer needs.
    pub(crate) fn new(input: &mut DecoderInput, reach: Reach) -> Result<Self> {
        let ids = &input.input_ids;
        let (rows, queries) = check_token_ids(reach.model, ids, reach.vocab_size)?;
        let cached = input.cache.as_ref().map_or(0, KeyValueCache::tokens);
        let keys = cached + queries;
        if let Some(limit) = reach.max_positions.filter(|&limit| keys > limit) {
            return Err(Error::Argument {
                operation: reach.model,
                expected: format!("sequences of at most {limit} tokens"),
                found: match cached {
                    0 => format!("the shape {:?}", ids.size()),
                    _ => format!(
                        "{cached} tokens in the cache and the shape {:?}",
                        ids.size()
                    ),
                },
            });
        }
        let positions = match input.position_ids.take() {
            Some(positions) => positions,
            None => {
                Tensor::f_arange_start(cached, keys, (Kind::Int64, ids.device()))?.f_unsqueeze(0)?
            }
        };
        let extent = Extent {
            rows,
            queries,
            cached,
            window: reach.window,
            device: ids.device(),
        };
        let mask = CausalMask::new(reach.model, input.attention_mask.take(), extent)?;
        Ok(Self { positions, mask })
    }
}

/// What a model with a head takes in a step of generation.
pub(crate) fn step_input(step: &DecoderStep<'_>) -> CausalLmInput {
    CausalLmInput {
        attention_mask: step.attention_mask.map(Tensor::shallow_clone),
        position_ids: Some(step.position_ids.shallow_clone()),
        cache: Some(step.cache.clone()),
        last_only: true,
        ..CausalLmInput::new(step.input_ids)
    }
}

/// The states of the last token of each row, `[rows, 1, width]`.
pub(crate) fn last_token(hidden: &Tensor) -> Result<Tensor> {
    Ok(hidden.f_narrow(1, hidden.size3()?.1 - 1, 1)?)
}
