//! Pieces of text that end a sequence.

use accelerate::Result;
use tch::{Device, Tensor};

use super::StoppingCriterion;
use crate::TextTokenizer;

/// Ends a sequence with the token that completes one of these texts.
///
/// The text may begin inside of a token and end inside of one: with the text `stop`, the tokens
/// `un`, `st`, `opp` end a sequence.
///
/// # Source
/// `StopStringCriteria` of `transformers`. Differs: it reads the text of the last tokens, not
/// tables made of the vocabulary. The key `stop_strings` of a configuration is refused, as a
/// configuration has no tokenizer.
#[derive(Debug, Clone)]
pub struct StopStrings<'t> {
    tokenizer: &'t TextTokenizer,
    texts: Vec<String>,
    /// How many of the last tokens can have to do with a text.
    window: i64,
}

impl<'t> StopStrings<'t> {
    /// Ends after any of `texts`; an empty one never ends anything.
    pub fn new<S: Into<String>>(
        tokenizer: &'t TextTokenizer,
        texts: impl IntoIterator<Item = S>,
    ) -> Self {
        let texts = texts.into_iter().map(Into::into);
        let texts: Vec<String> = texts.filter(|text: &String| !text.is_empty()).collect();
        let longest = texts.iter().map(String::len).max().unwrap_or(0);
        Self {
            tokenizer,
            texts,
            // A token has at least one byte; one more, as the first may lose the space before it.
            window: longest as i64 + 1,
        }
    }

    fn ends_row(&self, tokens: &[i64]) -> Result<bool> {
        let Some((_, before)) = tokens.split_last() else {
            return Ok(false);
        };
        let (whole, before) = (self.text(tokens)?, self.text(before)?);
        let is_complete = |text: &String| is_completed(&whole, &before, text);
        Ok(self.texts.iter().any(is_complete))
    }

    fn text(&self, tokens: &[i64]) -> Result<String> {
        self.tokenizer
            .decode(tokens, false)
            .map_err(|error| accelerate::Error::Argument {
                operation: "StopStrings",
                expected: "tokens of its tokenizer".to_owned(),
                found: error.to_string(),
            })
    }
}

impl StoppingCriterion for StopStrings<'_> {
    fn ends(&self, sequences: &Tensor) -> Result<Tensor> {
        let (rows, tokens) = sequences.size2()?;
        let window = self.window.min(tokens);
        let last = sequences
            .f_narrow(1, tokens - window, window)?
            .f_to_device(Device::Cpu)?;
        let ends = (0..rows)
            .map(|row| {
                let tokens: Vec<i64> = Vec::try_from(&last.f_select(0, row)?.f_contiguous()?)?;
                self.ends_row(&tokens)
            })
            .collect::<Result<Vec<bool>>>()?;
        Ok(Tensor::f_from_slice(&ends)?.f_to_device(sequences.device())?)
    }
}

/// Whether a text ends within what `whole` has beyond `before`.
fn is_completed(whole: &str, before: &str, text: &str) -> bool {
    let same = whole.bytes().zip(before.bytes());
    let known = same.take_while(|(one, other)| one == other).count();
    whole
        .rfind(text)
        .is_some_and(|start| start + text.len() > known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_in_the_last_token() {
        for (before, last, expected) in [
            ("s", "top", true),
            ("un", "stoppable", true),
            ("sto", "pped", true),
            ("stop", "ped", false),
            ("stop and", " stop", true),
            ("", "st", false),
        ] {
            let whole = format!("{before}{last}");
            assert_eq!(is_completed(&whole, before, "stop"), expected, "{whole}");
        }
        // Half a character is another one as long as it is alone.
        assert!(is_completed("caf\u{e9}", "caf\u{fffd}", "f\u{e9}"));
    }

    #[test]
    fn the_token_that_completes_a_text_ends_its_row() {
        let texts = ["please stop here, stop now", "a top of stones, and so on"];
        let tokenizer =
            TextTokenizer::train_byte_level_bpe(texts.into_iter(), 280, &["<end>"]).unwrap();
        let criterion = StopStrings::new(&tokenizer, ["", "stop"]);
        let ids = tokenizer.encode("do not stop", 64).unwrap().ids;
        for count in 1..=ids.len() {
            let text = tokenizer.decode(&ids[..count], false).unwrap();
            let row = Tensor::from_slice(&ids[..count]).view([1, -1]);
            let ends = Vec::<bool>::try_from(criterion.ends(&row).unwrap()).unwrap();
            assert_eq!(ends, [text.contains("stop")], "{text}");
        }
        let both = Tensor::from_slice(&[ids[0], ids[0]]).view([2, 1]);
        assert_eq!(criterion.ends(&both).unwrap().size(), [2]);
    }
}
