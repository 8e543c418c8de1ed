//! BERT: a transformer encoder over text.
//!
//! # Source
//! `BertModel` and its heads in `transformers`, on its default attention path (`sdpa`): the same
//! operations in the same order, so that the numbers are the same to the last bit.

mod attention;
mod classification;
mod config;
mod embeddings;
mod language_modeling;
mod layer;
mod model;
mod pipeline;
mod token_classification;

pub use self::attention::{BertAttention, BertSelfAttention, BertSelfOutput};
pub use self::classification::{
    BertForSequenceClassification, BertInput, SequenceClassifierOutput,
};
pub use self::config::BertConfig;
pub use self::embeddings::BertEmbeddings;
pub use self::language_modeling::{
    BertForMaskedLM, BertForPreTraining, BertLMPredictionHead, BertOnlyMLMHead,
    BertPreTrainingHeads, BertPreTrainingInput, BertPreTrainingOutput, BertPredictionHeadTransform,
    MaskedLMOutput,
};
pub use self::layer::{BertEncoder, BertIntermediate, BertLayer, BertOutput};
pub use self::model::{BertModel, BertModelInput, BertModelOutput, BertPooler};
pub use self::pipeline::BertCarried;
pub use self::token_classification::{BertForTokenClassification, TokenClassifierOutput};

/// The first checkpoints call the two parameters of a layer norm `gamma` and `beta`.
const RENAMED_ENDS: &[(&str, &str)] = &[
    ("LayerNorm.gamma", "LayerNorm.weight"),
    ("LayerNorm.beta", "LayerNorm.bias"),
];
