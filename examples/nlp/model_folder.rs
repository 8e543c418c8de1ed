//! The model and its tokenizer, and whether they fit each other and the arguments.

use std::path::{Path, PathBuf};

use accelerate::nn::Factory;
use accelerate_models::bert::{BertConfig, BertForSequenceClassification};
use accelerate_models::tokenizer::TextTokenizer;
use accelerate_models::{PretrainedConfig, PretrainedModel};

use crate::arguments::Arguments;

/// Negative and positive.
const LABELS: usize = 2;

/// Why the model cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ModelError {
    /// A file of the folder cannot be used.
    #[error(transparent)]
    Model(#[from] accelerate_models::Error),
    /// The tokenizer belongs to another model.
    #[error(
        "`{}` has {tokens} tokens, more than the `vocab_size` {vocab_size} of the model; take the tokenizer that belongs to it",
        folder.join("tokenizer.json").display()
    )]
    Tokens {
        /// The model folder.
        folder: PathBuf,
        /// How many tokens the tokenizer has.
        tokens: usize,
        /// How many the model has.
        vocab_size: i64,
    },
    /// Longer texts are asked for than the model can read.
    #[error(
        "`--max-length` {max_length} is more than the `max_position_embeddings` {positions} of the model; lower it"
    )]
    TooLong {
        /// The length asked for, in tokens.
        max_length: usize,
        /// The longest sequence of the model, in tokens.
        positions: i64,
    },
}

/// The tokenizer and the configuration of the folder.
pub(crate) fn read(
    folder: &Path,
    arguments: &Arguments,
) -> Result<(TextTokenizer, BertConfig), ModelError> {
    let config = BertConfig::from_folder(folder)?.with_num_labels(LABELS);
    let tokenizer = TextTokenizer::from_folder(folder)?;
    let at_most = |count: usize, limit: i64| i64::try_from(count).is_ok_and(|count| count <= limit);
    let (tokens, vocab_size) = (tokenizer.vocab_size(), config.vocab_size);
    if !at_most(tokens, vocab_size) {
        return Err(ModelError::Tokens {
            folder: folder.to_owned(),
            tokens,
            vocab_size,
        });
    }
    let (max_length, positions) = (arguments.max_length.get(), config.max_position_embeddings);
    if !at_most(max_length, positions) {
        return Err(ModelError::TooLong {
            max_length,
            positions,
        });
    }
    Ok((tokenizer, config))
}

/// The model with the weights of the folder, ready to be trained.
pub(crate) fn load(
    folder: &Path,
    config: &BertConfig,
) -> Result<BertForSequenceClassification, ModelError> {
    Ok(BertForSequenceClassification::with_weights_of(
        folder,
        config,
        &Factory::default(),
    )?)
}
