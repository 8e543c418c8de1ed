//! BERT: a transformer encoder over text.
//!
//! # Source
//! `BertModel` and `BertForSequenceClassification` of `transformers`, on its default attention
//! path (`sdpa`): the same operations in the same order, so that the numbers are the same to the
//! last bit.

mod attention;
mod checkpoint;
mod classification;
mod config;
mod embeddings;
mod layer;
mod model;

pub use self::attention::{BertAttention, BertSelfAttention, BertSelfOutput};
pub use self::classification::{
    BertForSequenceClassification, BertInput, SequenceClassifierOutput,
};
pub use self::config::{BertConfig, CONFIG_FILE, ProblemType};
pub use self::embeddings::BertEmbeddings;
pub use self::layer::{BertEncoder, BertIntermediate, BertLayer, BertOutput};
pub use self::model::{BertModel, BertModelInput, BertModelOutput, BertPooler};
