//! GPT-2: a decoder with learned positions.
//!
//! # Source
//! `GPT2Model`, `GPT2LMHeadModel` and `GPT2ForSequenceClassification` of `transformers`, on the
//! default attention path (`sdpa`). Without cross-attention.

mod attention;
mod block;
mod classification;
mod config;
mod conv1d;
mod language_modeling;
mod model;
mod pipeline;

pub use self::attention::GPT2Attention;
pub use self::block::{GPT2Block, GPT2MLP};
pub use self::classification::{GPT2ForSequenceClassification, GPT2SequenceInput};
pub use self::config::GPT2Config;
pub use self::conv1d::Conv1D;
pub use self::language_modeling::GPT2LMHeadModel;
pub use self::model::GPT2Model;
