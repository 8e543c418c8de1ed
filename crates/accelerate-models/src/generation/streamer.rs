//! Tokens and text as they come.

use accelerate::Result;

use crate::TextTokenizer;

/// Gets the tokens of one sequence while it is made.
///
/// # Source
/// `BaseStreamer` of `transformers`. As there, only one sequence can be streamed, and not from
/// beam search, which may change its mind about tokens before. Differs: the prompt is not sent.
pub trait Streamer {
    /// A new token, in order; the one that ends the sequence too.
    ///
    /// # Errors
    /// What the implementation reports; generation ends with it.
    fn token(&mut self, token: i64) -> Result<()>;

    /// There are no more tokens.
    ///
    /// # Errors
    /// As for [`token`](Self::token).
    fn end(&mut self) -> Result<()>;
}

/// Every closure over a token is a streamer.
impl<F: FnMut(i64) -> Result<()>> Streamer for F {
    fn token(&mut self, token: i64) -> Result<()> {
        self(token)
    }

    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Turns tokens into text and gives it on as soon as it will not change any more: words, numbers
/// and spaces at once, signs and unfinished characters with the next space.
///
/// # Source
/// `TextStreamer` of `transformers`, without special tokens. Differs: combining marks wait for
/// the next space too, and the end sends no line break.
pub struct TextStreamer<'t, W> {
    tokenizer: &'t TextTokenizer,
    write: W,
    tokens: Vec<i64>,
    /// How many bytes of the text of `tokens` were given on.
    given: usize,
}

impl<'t, W: FnMut(&str) -> Result<()>> TextStreamer<'t, W> {
    /// Gives text to `write`, piece by piece.
    pub fn new(tokenizer: &'t TextTokenizer, write: W) -> Self {
        Self {
            tokenizer,
            write,
            tokens: Vec::new(),
            given: 0,
        }
    }

    fn text(&self) -> Result<String> {
        self.tokenizer
            .decode(&self.tokens, true)
            .map_err(|error| accelerate::Error::Argument {
                operation: "TextStreamer",
                expected: "tokens of its tokenizer".to_owned(),
                found: error.to_string(),
            })
    }

    fn give(&mut self, text: &str, until: usize) -> Result<()> {
        match text.get(self.given..until) {
            Some(piece) if !piece.is_empty() => {
                self.given = until;
                (self.write)(piece)
            }
            _ => Ok(()),
        }
    }
}

impl<W: FnMut(&str) -> Result<()>> Streamer for TextStreamer<'_, W> {
    fn token(&mut self, token: i64) -> Result<()> {
        self.tokens.push(token);
        let text = self.text()?;
        if text.ends_with('\n') {
            self.give(&text, text.len())?;
            // The last token stays: what follows needs it to know whether it begins with a space.
            self.tokens.drain(..self.tokens.len() - 1);
            self.given = self.text()?.len();
            return Ok(());
        }
        let until = settled(&text, self.given);
        self.give(&text, until)
    }

    fn end(&mut self) -> Result<()> {
        let text = self.text()?;
        self.give(&text, text.len())?;
        self.tokens.clear();
        self.given = 0;
        Ok(())
    }
}

impl<W> std::fmt::Debug for TextStreamer<'_, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextStreamer")
            .field("tokens", &self.tokens)
            .field("given", &self.given)
            .finish_non_exhaustive()
    }
}

/// Up to where a text whose first `given` bytes are out will not change any more.
fn settled(text: &str, given: usize) -> usize {
    let new = text.get(given..).unwrap_or_default();
    let plain = |character: char| character.is_alphanumeric() || character.is_whitespace();
    if new.chars().all(plain) {
        return text.len();
    }
    text.rfind(' ')
        .map_or(given, |space| (space + 1).max(given))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_wait_for_the_next_space() {
        assert_eq!(settled("whole words", 0), 11);
        assert_eq!(settled("a word, and <b", 0), 12);
        assert_eq!(settled("half \u{fffd}", 5), 5);
        assert_eq!(settled("中文", 0), 6);
        assert_eq!(settled("done.", 4), 4);
    }
}
