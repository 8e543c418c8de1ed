//! What is read and what is to be written.

use crate::snippets::Snippet;

/// The beginning of a line, and the same tidied up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) source: String,
    pub(crate) target: String,
}

/// A pair of each line that has something to write.
pub(crate) fn of(snippets: &[Snippet], words: usize) -> Vec<Pair> {
    let pairs = snippets.iter().map(|snippet| {
        let source: Vec<&str> = snippet.text.split_whitespace().take(words).collect();
        let source = source.join(" ");
        let target = tidied(&source);
        Pair { source, target }
    });
    pairs.filter(|pair| !pair.target.is_empty()).collect()
}

/// Lower case, nothing but words, and `#` in the place of a number.
fn tidied(text: &str) -> String {
    let mut tidied = String::with_capacity(text.len());
    for character in text.chars().flat_map(char::to_lowercase) {
        match character {
            '\u{2019}' | '\'' => tidied.push('\''),
            'a'..='z' => tidied.push(character),
            '0'..='9' if tidied.ends_with('#') => {}
            '0'..='9' => tidied.push('#'),
            _ if tidied.ends_with(' ') || tidied.is_empty() => {}
            _ => tidied.push(' '),
        }
    }
    tidied.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_tidied_up() {
        for (text, expected) in [
            ("It's a 1970s film -- GREAT!", "it's a #s film great"),
            ("\"Don\u{2019}t\" go...", "don't go"),
            ("9 1/2 weeks", "# # # weeks"),
            ("...", ""),
            ("Caf\u{e9}", "caf"),
        ] {
            assert_eq!(tidied(text), expected);
        }
    }

    #[test]
    fn lines_without_words_are_left_out() {
        let snippet = |text: &str| Snippet {
            text: text.to_owned(),
            positive: true,
        };
        let pairs = of(&[snippet("A  Fine, old film"), snippet("!? ...")], 3);
        let expected = Pair {
            source: "A Fine, old".to_owned(),
            target: "a fine old".to_owned(),
        };
        assert_eq!(pairs, [expected]);
    }
}
