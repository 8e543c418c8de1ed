//! Mixtral: Llama's decoder with a mixture of experts for the feed-forward part.
//!
//! In memory as in public checkpoints, each expert is a module with the linear layers `w1`, `w2`
//! and `w3`, so files are mapped as they are, and what works on linear layers (quantisation,
//! sharding by tensor) finds them.
//!
//! # Source
//! `MixtralForCausalLM` of `transformers`, on the default attention path (`sdpa`). Differs:
//! `transformers` 5 fuses the experts of a layer into two parameters in memory (`mlp.experts`);
//! files are the same.

mod block;
mod config;
mod language_modeling;
mod model;

pub use self::block::{MixtralBlockSparseTop2MLP, MixtralDecoderLayer};
pub use self::config::MixtralConfig;
pub use self::language_modeling::{MixtralForCausalLM, MoeCausalLmOutput};
pub use self::model::{MixtralModel, MoeDecoderOutput};
