//! Why a text could not be read.

use super::{MAX_DEPTH, MAX_NODES};

/// A mistake in a text, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct SyntaxError {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong there.
    pub problem: Problem,
}

/// What can be wrong with a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The text does not follow the grammar.
    #[error("{message}")]
    Malformed {
        /// What the parser says.
        message: String,
    },

    /// A line of a map without a colon and a space behind the key.
    #[error("expected `key: value`, found `{found}`{}", colon_rule(.found))]
    NoColon {
        /// The line found.
        found: String,
    },

    /// A map has a key twice.
    #[error("key `{key}` stands here and in line {first_line}")]
    DuplicateKey {
        /// The key.
        key: String,
        /// Line in which it stands first.
        first_line: usize,
    },

    /// A character that no text file should hold.
    #[error("expected text, found the control character U+{:04X}", *.character as u32)]
    ControlCharacter {
        /// The character.
        character: char,
    },

    /// Bytes that are no text.
    #[error("expected text in UTF-8, found other bytes")]
    NotUtf8,

    /// More than one document.
    #[error("expected the end of the file, found a second document")]
    SecondDocument,

    /// Lists and maps nested too deeply.
    #[error("expected at most {MAX_DEPTH} lists and maps inside each other, found more")]
    TooDeep,

    /// Too many values, usually because of aliases of aliases.
    #[error(
        "expected at most {MAX_NODES} values, found more (aliases counted as what they stand for)"
    )]
    TooLarge,

    /// A value that contains itself.
    #[error("alias stands inside the value that it names")]
    EndlessAlias,

    /// A tag that plain data does not have.
    #[error("expected plain data, found the tag `{tag}`")]
    UnknownTag {
        /// The tag.
        tag: String,
    },

    /// A value that is not what its tag says.
    #[error("expected a value that fits the tag `{tag}`, found `{found}`")]
    WrongTag {
        /// The tag.
        tag: String,
        /// The value found.
        found: String,
    },

    /// A whole number that does not fit into 64 bits.
    #[error("expected a whole number of at most 64 bits, found `{found}` (a text must be quoted)")]
    NumberTooLarge {
        /// The number, as it was written.
        found: String,
    },

    /// A list or a map in the place of a key.
    #[error("expected a simple key, found {found}")]
    KeyNotScalar {
        /// What was found.
        found: &'static str,
    },

    /// A merge of something that is not a map.
    #[error("expected a map or a list of maps after `<<`, found {found}")]
    NothingToMerge {
        /// What was found.
        found: String,
    },
}

impl Problem {
    /// This problem, at a place.
    pub(in crate::config) fn at(self, line: usize, column: usize) -> SyntaxError {
        SyntaxError {
            line,
            column,
            problem: self,
        }
    }
}

fn colon_rule(found: &str) -> &'static str {
    match found.contains(':') {
        true => " (a space must follow the colon)",
        false => "",
    }
}
