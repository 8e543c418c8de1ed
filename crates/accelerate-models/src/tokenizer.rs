//! Text to token ids, through the `tokenizers` crate.

mod training;

use std::io::Write as _;
use std::path::Path;

use accelerate::checkpoint::AtomicFile;
use accelerate::tree::Tree;
use tch::Tensor;
use tokenizers::{PostProcessor as _, Tokenizer, TruncationDirection};

use crate::{Error, Result};

/// The name of the tokenizer's file in a model folder.
pub const TOKENIZER_FILE: &str = "tokenizer.json";

/// Turns text into token ids, with the special tokens the model expects.
///
/// Truncation and padding are the caller's choice on each call; settings of the file, which often
/// pad everything to one length, are not used.
#[derive(Debug, Clone)]
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    pad_id: i64,
    pad_type_id: i64,
}

impl TextTokenizer {
    /// Reads [`TOKENIZER_FILE`] in a model folder.
    ///
    /// # Errors
    /// [`Error::TokenizerFile`] if the file is absent or damaged.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        let path = folder.as_ref().join(TOKENIZER_FILE);
        let failed = |source| Error::TokenizerFile {
            path: path.clone(),
            source,
        };
        let tokenizer = Tokenizer::from_file(&path).map_err(failed)?;
        Self::from_tokenizer(tokenizer).map_err(failed)
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// [`Error::TokenizerFile`] if the text is no tokenizer.
    pub fn from_json(json: &str) -> Result<Self> {
        json.parse()
            .and_then(Self::from_tokenizer)
            .map_err(|source| Error::TokenizerFile {
                path: TOKENIZER_FILE.into(),
                source,
            })
    }

    fn from_tokenizer(mut tokenizer: Tokenizer) -> tokenizers::Result<Self> {
        let padding = tokenizer.get_padding();
        let (pad_id, pad_type_id) = match padding {
            Some(padding) => (padding.pad_id, padding.pad_type_id),
            None => (tokenizer.token_to_id("[PAD]").unwrap_or(0), 0),
        };
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None)?;
        Ok(Self {
            tokenizer,
            pad_id: i64::from(pad_id),
            pad_type_id: i64::from(pad_type_id),
        })
    }

    /// The content of [`TOKENIZER_FILE`].
    ///
    /// # Errors
    /// [`Error::TokenizerFile`] if the tokenizer cannot be written as JSON.
    pub fn to_json(&self) -> Result<String> {
        self.tokenizer
            .to_string(true)
            .map_err(|source| Error::TokenizerFile {
                path: TOKENIZER_FILE.into(),
                source,
            })
    }

    /// Writes [`TOKENIZER_FILE`] into a folder; it is whole or absent.
    ///
    /// # Errors
    /// [`Error::SaveFolder`] if the folder cannot be made or written.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        let path = folder.join(TOKENIZER_FILE);
        let json = self.to_json()?;
        let failed = |source| Error::SaveFolder {
            path: path.clone(),
            source,
        };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let formats = |error| Error::Accelerate(accelerate::Error::Formats(error));
        let mut file = AtomicFile::create(&path).map_err(formats)?;
        file.write_all(json.as_bytes()).map_err(failed)?;
        file.commit().map_err(formats)
    }

    /// The id of a token, such as a special one.
    pub fn token_id(&self, token: &str) -> Option<i64> {
        self.tokenizer.token_to_id(token).map(i64::from)
    }

    /// The tokens of one text, at most `max_length` with the special ones; too long a text is cut
    /// at its end.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if the special tokens alone are too many, [`Error::Tokenise`] if the
    /// tokenizer refuses the text.
    pub fn encode(&self, text: &str, max_length: usize) -> Result<Encoding> {
        let mut encodings = self.encode_each(&[text], max_length)?;
        encodings.pop().ok_or(Error::NoRoom {
            max_length,
            special: 0,
        })
    }

    /// The tokens of each text, padded to the longest of them.
    ///
    /// # Errors
    /// As for [`encode`](Self::encode).
    pub fn encode_batch(&self, texts: &[&str], max_length: usize) -> Result<Vec<Encoding>> {
        let mut encodings = self.encode_each(texts, max_length)?;
        let longest = longest(&encodings);
        encodings
            .iter_mut()
            .for_each(|encoding| self.pad(encoding, longest));
        Ok(encodings)
    }

    /// The tokens of each text without padding, computed in parallel.
    ///
    /// # Errors
    /// As for [`encode`](Self::encode).
    pub fn encode_each(&self, texts: &[&str], max_length: usize) -> Result<Vec<Encoding>> {
        let special = self
            .tokenizer
            .get_post_processor()
            .map_or(0, |post| post.added_tokens(false));
        let room = max_length.checked_sub(special).filter(|&room| room > 0);
        let room = room.ok_or(Error::NoRoom {
            max_length,
            special,
        })?;
        let chars = || {
            texts
                .iter()
                .map(|text| text.chars().count())
                .max()
                .unwrap_or(0)
        };
        let failed = |source| Error::Tokenise {
            chars: chars(),
            source,
        };
        let plain = self
            .tokenizer
            .encode_batch_fast(texts.to_vec(), false)
            .map_err(failed)?;
        plain
            .into_iter()
            .map(|mut encoding| {
                encoding.truncate(room, 0, TruncationDirection::Right);
                let whole = self
                    .tokenizer
                    .post_process(encoding, None, true)
                    .map_err(failed)?;
                Ok(Encoding::from_tokens(&whole))
            })
            .collect()
    }

    /// The encodings as one batch of tensors, padded on the right to the longest of them.
    ///
    /// # Shapes
    /// Each tensor is `[texts, tokens]` of int64.
    ///
    /// # Errors
    /// If memory is short.
    pub fn batch(&self, encodings: &[&Encoding]) -> Result<EncodedBatch> {
        self.batch_padded(encodings, Side::Right)
    }

    /// As [`batch`](Self::batch), padded on the left: what a decoder can continue.
    ///
    /// # Errors
    /// If memory is short.
    pub fn batch_to_continue(&self, encodings: &[&Encoding]) -> Result<EncodedBatch> {
        self.batch_padded(encodings, Side::Left)
    }

    fn batch_padded(&self, encodings: &[&Encoding], side: Side) -> Result<EncodedBatch> {
        let longest = encodings
            .iter()
            .map(|encoding| encoding.ids.len())
            .max()
            .unwrap_or(0);
        let rows = |part: fn(&Encoding) -> &[i64], filler: i64| -> accelerate::Result<Tensor> {
            let mut values = Vec::with_capacity(encodings.len() * longest);
            for encoding in encodings {
                let padding = std::iter::repeat_n(filler, longest - encoding.ids.len());
                match side {
                    Side::Left => {
                        values.extend(padding);
                        values.extend_from_slice(part(encoding));
                    }
                    Side::Right => {
                        values.extend_from_slice(part(encoding));
                        values.extend(padding);
                    }
                }
            }
            let shape = [encodings.len() as i64, longest as i64];
            Ok(Tensor::f_from_slice(&values)?.f_view(shape)?)
        };
        Ok(EncodedBatch {
            input_ids: rows(|encoding| &encoding.ids, self.pad_id)?,
            attention_mask: rows(|encoding| &encoding.attention_mask, 0)?,
            token_type_ids: rows(|encoding| &encoding.type_ids, self.pad_type_id)?,
        })
    }

    /// The text of these tokens, with or without the special ones.
    ///
    /// # Errors
    /// [`Error::Detokenise`] if an id is negative or too large, or the tokenizer refuses.
    pub fn decode(&self, ids: &[i64], skip_special_tokens: bool) -> Result<String> {
        let failed = |source| Error::Detokenise {
            tokens: ids.len(),
            source,
        };
        let narrow: Vec<u32> = ids
            .iter()
            .map(|&id| u32::try_from(id))
            .collect::<Result<_, _>>()
            .map_err(|error| failed(error.into()))?;
        self.tokenizer
            .decode(&narrow, skip_special_tokens)
            .map_err(failed)
    }

    /// The id of the padding token.
    pub fn pad_id(&self) -> i64 {
        self.pad_id
    }

    /// How many tokens there are, added ones included.
    pub fn vocab_size(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }

    fn pad(&self, encoding: &mut Encoding, length: usize) {
        encoding.ids.resize(length, self.pad_id);
        encoding.attention_mask.resize(length, 0);
        encoding.type_ids.resize(length, self.pad_type_id);
    }
}

/// Where padding goes.
#[derive(Debug, Clone, Copy)]
enum Side {
    Left,
    Right,
}

fn longest(encodings: &[Encoding]) -> usize {
    encodings
        .iter()
        .map(|encoding| encoding.ids.len())
        .max()
        .unwrap_or(0)
}

/// The tokens of one text; the three lists have one length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoding {
    /// The id of each token.
    pub ids: Vec<i64>,
    /// 1 for a token of the text or a special one, 0 for padding.
    pub attention_mask: Vec<i64>,
    /// Which segment each token belongs to.
    pub type_ids: Vec<i64>,
}

impl Encoding {
    fn from_tokens(tokens: &tokenizers::Encoding) -> Self {
        let wide = |values: &[u32]| values.iter().copied().map(i64::from).collect();
        Self {
            ids: wide(tokens.get_ids()),
            attention_mask: wide(tokens.get_attention_mask()),
            type_ids: wide(tokens.get_type_ids()),
        }
    }
}

/// Several texts as tensors of one length.
#[derive(Debug, Tree)]
pub struct EncodedBatch {
    /// The ids, `[texts, tokens]`.
    pub input_ids: Tensor,
    /// 1 where there is a token, 0 where there is padding, `[texts, tokens]`.
    pub attention_mask: Tensor,
    /// The segment of each token, `[texts, tokens]`.
    pub token_type_ids: Tensor,
}
