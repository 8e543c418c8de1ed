//! Models with the parameter and class names of their public checkpoints.
//!
//! A model is built from its `config.json` and reads a Hugging Face folder: configuration,
//! safetensors weights and `tokenizer.json`.
//!
//! | module | room for |
//! | --- | --- |
//! | [`hub`] | where a model comes from: a folder or the hub |
//! | [`bert`] | BERT, bare and with a sequence-classification head |
//! | [`generation`] | new tokens from a model |
//! | [`tokenizer`] | text to token ids |
#![forbid(unsafe_code)]

pub mod bert;
mod error;
pub mod generation;
pub mod hub;
pub mod tokenizer;

pub use error::{Error, Result};
pub use hub::{HubId, ModelSource};
pub use tokenizer::{EncodedBatch, Encoding, TextTokenizer};
