//! Llama: a decoder with rotary positions, grouped-query attention and a gated feed-forward part.
//!
//! # Source
//! `LlamaModel` and `LlamaForCausalLM` of `transformers`, on the default attention path (`sdpa`).

mod config;
mod language_modeling;
mod layer;
mod model;
mod pipeline;

pub use self::config::LlamaConfig;
pub use self::language_modeling::LlamaForCausalLM;
pub use self::layer::{LlamaDecoderLayer, LlamaMLP};
pub use self::model::LlamaModel;

pub(crate) use self::model::unchecked;
