//! From pairs of lines to what the model reads.

use accelerate::data::Collate;
use accelerate::tch::Tensor;
use accelerate_models::TextTokenizer;
use accelerate_models::loss::IGNORED_LABEL;
use accelerate_models::t5::T5Input;

use crate::pairs::Pair;
use crate::tokens::{END, PADDING};

/// Pairs to token ids, each side padded to its longest line.
#[derive(Debug, Clone)]
pub(crate) struct Batches {
    pub(crate) tokenizer: TextTokenizer,
}

impl Collate<Pair> for Batches {
    type Batch = T5Input;

    fn collate(&self, pairs: Vec<Pair>) -> accelerate::Result<T5Input> {
        let sources: Vec<&str> = pairs.iter().map(|pair| pair.source.as_str()).collect();
        let targets: Vec<&str> = pairs.iter().map(|pair| pair.target.as_str()).collect();
        let input_ids = self.rows(&sources, PADDING)?;
        Ok(T5Input {
            attention_mask: Some(input_ids.f_ne(PADDING)?),
            input_ids: Some(input_ids),
            labels: Some(self.rows(&targets, IGNORED_LABEL)?),
            ..T5Input::default()
        })
    }
}

impl Batches {
    /// The ids of each line with the end token, `[lines, tokens]`.
    fn rows(&self, lines: &[&str], filler: i64) -> accelerate::Result<Tensor> {
        let encodings = self.tokenizer.encode_each(lines, usize::MAX);
        let mut rows: Vec<Vec<i64>> = encodings
            .map_err(accelerate::Error::data)?
            .into_iter()
            .map(|encoding| encoding.ids)
            .collect();
        rows.iter_mut().for_each(|row| row.push(END));
        let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
        rows.iter_mut().for_each(|row| row.resize(longest, filler));
        let shape = [rows.len() as i64, longest as i64];
        Ok(Tensor::f_from_slice(&rows.concat())?.f_view(shape)?)
    }
}
