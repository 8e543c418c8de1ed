//! A tokenizer from text.

use std::collections::HashSet;

use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

use super::TextTokenizer;
use crate::{Error, Result};

/// Pairs of tokens that are rarer than this are not joined.
const LEAST_FREQUENCY: u64 = 2;

impl TextTokenizer {
    /// Learns byte-pair encoding from texts, as GPT-2's tokenizer was learnt.
    ///
    /// It knows every byte, so it reads any text. The vocabulary has at most `vocab_size` tokens,
    /// the special ones first, and fewer where the texts do not have so many pairs. The same texts
    /// give the same tokenizer.
    ///
    /// # Errors
    /// [`Error::TokenizerTraining`] if the special tokens and the 256 bytes are more than
    /// `vocab_size`, or learning fails.
    ///
    /// # Source
    /// `ByteLevelBPETokenizer` of Hugging Face's `tokenizers`.
    pub fn train_byte_level_bpe<'t>(
        texts: impl Iterator<Item = &'t str> + Send,
        vocab_size: usize,
        special_tokens: &[&str],
    ) -> Result<Self> {
        let failed = |source| Error::TokenizerTraining { vocab_size, source };
        let alphabet: HashSet<char> = ByteLevel::alphabet().into_iter().collect();
        let least = alphabet.len() + special_tokens.len();
        if vocab_size < least {
            let text = format!("expected at least {least} tokens: the bytes and the special ones");
            return Err(failed(text.into()));
        }
        let special = special_tokens
            .iter()
            .map(|&token| AddedToken::from(token, true));
        let mut trainer: TrainerWrapper = BpeTrainerBuilder::new()
            .show_progress(false)
            .vocab_size(vocab_size)
            .min_frequency(LEAST_FREQUENCY)
            .special_tokens(special.collect())
            .initial_alphabet(alphabet)
            .build()
            .into();
        let mut tokenizer = Tokenizer::new(BPE::default());
        tokenizer
            .with_pre_tokenizer(Some(ByteLevel::default().add_prefix_space(false)))
            .with_post_processor(Some(ByteLevel::default().trim_offsets(false)))
            .with_decoder(Some(ByteLevel::default()));
        tokenizer.train(&mut trainer, texts).map_err(failed)?;
        Self::from_tokenizer(tokenizer).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "the cat and the hat and the bat\nsat in the sun, the sun\n";

    #[test]
    fn what_was_learnt_reads_any_text() {
        let end = "<|endoftext|>";
        let train = || TextTokenizer::train_byte_level_bpe(TEXT.lines(), 270, &[end]).unwrap();
        let tokenizer = train();
        assert_eq!(tokenizer.token_id(end), Some(0));
        assert_eq!(tokenizer.pad_id(), 0);
        for text in ["the sun", " naïve 漢字\n\n\ttab", ""] {
            let ids = tokenizer.encode(text, usize::MAX).unwrap().ids;
            assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
        }
        let ids = tokenizer.encode(" the", usize::MAX).unwrap().ids;
        assert_eq!(ids.len(), 1, "a frequent word is one token");
        let folder = tempfile::tempdir().unwrap();
        tokenizer.save(folder.path()).unwrap();
        let read = TextTokenizer::from_folder(folder.path()).unwrap();
        assert_eq!(read.to_json().unwrap(), train().to_json().unwrap());
        assert_eq!(read.vocab_size(), tokenizer.vocab_size());
    }

    #[test]
    fn too_small_a_vocabulary_is_told() {
        let error = TextTokenizer::train_byte_level_bpe(TEXT.lines(), 256, &["<s>"]).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("at least 257 tokens"), "{cause}");
    }
}
