//! From lines of reviews to what the model reads.

use accelerate::data::Collate;
use accelerate::tch::Tensor;
use accelerate_models::bert::BertInput;
use accelerate_models::tokenizer::{Encoding, TextTokenizer};

use crate::snippets::Snippet;

/// Snippets to token ids, padded to the longest of the batch.
#[derive(Debug, Clone)]
pub(crate) struct Batches {
    pub(crate) tokenizer: TextTokenizer,
    /// Tokens of a text that are used.
    pub(crate) max_length: usize,
}

impl Batches {
    /// The tokens of each snippet, without padding.
    pub(crate) fn encode(&self, snippets: &[Snippet]) -> accelerate::Result<Vec<Encoding>> {
        let texts: Vec<&str> = snippets.iter().map(|snippet| &*snippet.text).collect();
        self.tokenizer
            .encode_each(&texts, self.max_length)
            .map_err(accelerate::Error::data)
    }
}

impl Collate<Snippet> for Batches {
    type Batch = BertInput;

    fn collate(&self, items: Vec<Snippet>) -> accelerate::Result<BertInput> {
        let encodings = self.encode(&items)?;
        let tokens = self
            .tokenizer
            .batch(&encodings.iter().collect::<Vec<_>>())
            .map_err(accelerate::Error::data)?;
        let labels: Vec<i64> = items
            .iter()
            .map(|snippet| i64::from(snippet.positive))
            .collect();
        Ok(BertInput {
            input_ids: tokens.input_ids,
            attention_mask: Some(tokens.attention_mask),
            token_type_ids: Some(tokens.token_type_ids),
            labels: Some(Tensor::f_from_slice(&labels)?),
        })
    }
}
