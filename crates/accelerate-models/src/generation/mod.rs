//! New tokens from a model: greedy search, sampling and beam search over a cache of keys and values.
//!
//! | item | room for |
//! | --- | --- |
//! | [`GenerativeModel`], [`DecoderStep`], [`EncoderStates`] | what a model does to take part |
//! | [`generate`], [`Prompt`], [`Generated`], [`GenerateOptions`] | the way in and out |
//! | [`KeyValueCache`], [`LayerCache`] | keys and values of tokens that were read before |
//! | [`GenerationConfig`] | how tokens are chosen, and when to stop |
//! | [`LogitsProcessor`], [`PromptFacts`], [`StoppingCriterion`] | further changes to scores, further reasons to stop |
//! | [`Streamer`], [`TextStreamer`] | tokens and text as they come |

mod beam;
mod cache;
mod config;
mod generate;
mod logits;
mod model;
pub(crate) mod one_or_many;
mod session;
mod single;
mod stop_strings;
mod stopping;
mod streamer;
mod synced;

pub use self::cache::{KeyValueCache, LayerCache};
pub use self::config::{EarlyStopping, GENERATION_CONFIG_FILE, GenerationConfig};
pub use self::generate::{GenerateOptions, Generated, generate};
pub use self::logits::{LogitsProcessor, PromptFacts, logits_processors};
pub use self::model::{
    Architecture, DecoderStep, EncoderStates, GenerationProfile, GenerativeModel,
};
pub use self::session::Prompt;
pub use self::stop_strings::StopStrings;
pub use self::stopping::{MaxTime, StopTokens, StoppingCriterion};
pub use self::streamer::{Streamer, TextStreamer};
