//! Texts as vectors: texts that mean alike have vectors that point alike.

use std::io::ErrorKind;
use std::path::Path;

use accelerate::nn::{Factory, Forward, Module};
use accelerate::{Error, Result};
use serde::Deserialize;
use tch::{Kind, Tensor};

use crate::bert::{BertModel, BertModelInput};
use crate::pretrained::{PretrainedModel, parse_config};
use crate::tokenizer::TextTokenizer;

/// The mean of the states of all tokens that are not padding.
///
/// # Shapes
/// - `hidden`: `[texts, tokens, width]`
/// - `attention_mask`: `[texts, tokens]`, 1 where there is a token
/// - output: `[texts, width]`; zeros for a text without tokens
///
/// # Errors
/// [`Error::Argument`] if the mask is not of the states' shape.
///
/// # Source
/// `Pooling` of `sentence-transformers` with `pooling_mode_mean_tokens`.
pub fn mean_pooling(hidden: &Tensor, attention_mask: &Tensor) -> Result<Tensor> {
    let (texts, tokens, _) = hidden.size3()?;
    if attention_mask.size() != [texts, tokens] {
        return Err(Error::Argument {
            operation: "mean_pooling",
            expected: format!("an attention mask of shape [{texts}, {tokens}]"),
            found: format!("{:?}", attention_mask.size()),
        });
    }
    let weight = attention_mask
        .f_unsqueeze(-1)?
        .f_to_kind(hidden.f_kind()?)?;
    let sum = hidden
        .f_mul(&weight)?
        .f_sum_dim_intlist(1, false, None::<Kind>)?;
    let count = weight.f_sum_dim_intlist(1, false, None::<Kind>)?;
    // The original's guard against a text without tokens.
    Ok(sum.f_div(&count.f_clamp_min(1e-9)?)?)
}

/// Each row divided by its length, so that a dot product is the cosine of an angle.
///
/// # Shapes
/// `[texts, width]` to the same.
///
/// # Errors
/// If the values are no floating-point numbers.
///
/// # Source
/// `torch.nn.functional.normalize` with its defaults.
pub fn normalize(vectors: &Tensor) -> Result<Tensor> {
    let length = vectors
        .f_norm_scalaropt_dim(2.0, [-1i64].as_slice(), true)?
        .f_clamp_min(1e-12)?;
    Ok(vectors.f_div(&length)?)
}

/// What `sentence_bert_config.json` says.
#[derive(Debug, Default, Deserialize)]
struct Settings {
    max_seq_length: Option<usize>,
}

impl Settings {
    fn of(folder: &Path) -> crate::Result<Self> {
        let path = folder.join("sentence_bert_config.json");
        match std::fs::read(&path) {
            Ok(text) => parse_config(&path, &text),
            // Only models of `sentence-transformers` have it.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(crate::Error::Read {
                path,
                needed: "a `sentence_bert_config.json` that can be read, or none",
                source,
            }),
        }
    }
}

/// A BERT with its tokenizer, which makes one vector of each text: MiniLM and its like.
///
/// ```no_run
/// use accelerate::nn::Factory;
/// use accelerate_models::sentence::SentenceEncoder;
///
/// let encoder = SentenceEncoder::from_folder(".data/minilm", &Factory::default())?;
/// let vectors = encoder.encode(&["a warm comedy", "a funny film", "the plot collapses"])?;
/// let alike = vectors.f_matmul(&vectors.f_tr()?)?;
/// assert!(alike.double_value(&[0, 1]) > alike.double_value(&[0, 2]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SentenceEncoder {
    model: BertModel,
    tokenizer: TextTokenizer,
    max_length: usize,
}

impl SentenceEncoder {
    /// The model of a folder, with texts cut where `sentence_bert_config.json` says, or at the
    /// longest sequence that the model reads.
    ///
    /// # Errors
    /// As for [`PretrainedModel::from_folder`] and [`TextTokenizer::from_folder`], and
    /// [`Error::ConfigFormat`](crate::Error::ConfigFormat) if `sentence_bert_config.json` is damaged.
    pub fn from_folder(folder: impl AsRef<Path>, factory: &Factory) -> crate::Result<Self> {
        let settings = Settings::of(folder.as_ref())?;
        let tokenizer = TextTokenizer::from_folder(&folder)?;
        let encoder = Self::new(BertModel::from_folder(folder, factory)?, tokenizer);
        Ok(match settings.max_seq_length {
            Some(length) => encoder.with_max_length(length),
            None => encoder,
        })
    }

    /// A model with the tokenizer that belongs to it.
    pub fn new(model: BertModel, tokenizer: TextTokenizer) -> Self {
        let longest = model.config().max_position_embeddings;
        Self {
            model,
            tokenizer,
            max_length: usize::try_from(longest).unwrap_or(0),
        }
    }

    /// Cuts texts after so many tokens, the special ones included; never later than the model can
    /// read.
    #[must_use]
    pub fn with_max_length(mut self, max_length: usize) -> Self {
        self.max_length = self.max_length.min(max_length);
        self
    }

    /// The model.
    pub fn model(&self) -> &BertModel {
        &self.model
    }

    /// A vector of length 1 for each text: the mean over its tokens. Nothing is recorded for
    /// gradients.
    ///
    /// # Shapes
    /// `[texts, hidden_size]`.
    ///
    /// # Errors
    /// Those of the tokenizer and of the model.
    pub fn encode(&self, texts: &[&str]) -> crate::Result<Tensor> {
        let encodings = self.tokenizer.encode_each(texts, self.max_length)?;
        let batch = self
            .tokenizer
            .batch(&encodings.iter().collect::<Vec<_>>())?;
        let device = self
            .model
            .parameters()
            .first()
            .map_or(tch::Device::Cpu, |parameter| parameter.tensor().device());
        let there = |tensor: &Tensor| tensor.f_to_device(device);
        tch::no_grad(|| {
            let attention_mask = there(&batch.attention_mask).map_err(Error::from)?;
            let input = BertModelInput {
                input_ids: there(&batch.input_ids).map_err(Error::from)?,
                attention_mask: Some(attention_mask.shallow_clone()),
                token_type_ids: Some(there(&batch.token_type_ids).map_err(Error::from)?),
            };
            let hidden = self.model.call(input)?.last_hidden_state;
            Ok(normalize(&mean_pooling(&hidden, &attention_mask)?)?)
        })
    }
}
