//! New tokens from a model: greedy search, sampling and beam search over a cache of keys and values.
//!
//! | item | room for |
//! | --- | --- |
//! | [`GenerativeModel`], [`DecoderStep`], [`EncoderStates`] | what a model does to take part |
//! | [`KeyValueCache`], [`LayerCache`] | keys and values of tokens that were read before |
//! | [`GenerationConfig`] | how tokens are chosen, and when to stop |
//! | [`StoppingCriterion`] | further reasons to stop |
//! | [`Streamer`], [`TextStreamer`] | tokens and text as they come |

mod cache;
mod config;
mod model;
mod stopping;
mod streamer;

pub use self::cache::{KeyValueCache, LayerCache};
pub use self::config::{EarlyStopping, GENERATION_CONFIG_FILE, GenerationConfig};
pub use self::model::{
    Architecture, DecoderStep, EncoderStates, GenerationProfile, GenerativeModel,
};
pub use self::stopping::{MaxTime, StopTokens, StoppingCriterion};
pub use self::streamer::{Streamer, TextStreamer};
