//! T5: an encoder that reads text and a decoder that writes text.
//!
//! # Source
//! `T5ForConditionalGeneration` and `T5EncoderModel` of `transformers`, on its default attention
//! path (`sdpa`). Differs: the position bias is joined with the mask once for all layers of a
//! stack, not in every layer; and whether the output layer has weights of its own is what
//! `tie_word_embeddings` says, also for a new model, which the original always ties.

mod attention;
mod config;
mod encoder;
mod feed_forward;
mod generation;
mod layer;
mod layer_norm;
mod mask;
mod model;
mod pipeline;
mod position;
mod stack;

pub use self::attention::{T5Attention, T5AttentionInput};
pub use self::config::{EndTokens, FeedForward, T5Config};
pub use self::encoder::{T5EncoderInput, T5EncoderModel};
pub use self::feed_forward::{T5DenseActDense, T5DenseGatedActDense, T5FeedForward, T5LayerFF};
pub use self::layer::{
    T5Block, T5BlockInput, T5BlockLayers, T5LayerCrossAttention, T5LayerSelfAttention,
};
pub use self::layer_norm::T5LayerNorm;
pub use self::model::{Seq2SeqLMOutput, T5ForConditionalGeneration, T5Input};
pub use self::pipeline::T5Carried;
pub use self::stack::{T5Stack, T5StackInput};
