//! Why a config file could not be used.

use std::{fmt, io, path::PathBuf};

use super::{Node, SyntaxError, nearest};
use crate::Hint;

/// Why a config file could not be read or understood.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no file at the path.
    #[error("config file `{}` does not exist", path.display())]
    Missing {
        /// The path, as it was given.
        path: PathBuf,
    },

    /// The file is there, but its bytes cannot be had.
    #[error("cannot read config file `{}`", path.display())]
    Unreadable {
        /// The path, as it was given.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },

    /// The file is far larger than a config file can be.
    #[error("config file `{}` is too large: expected at most {limit} bytes", path.display())]
    TooLarge {
        /// The path, as it was given.
        path: PathBuf,
        /// How many bytes a config file may have.
        limit: u64,
    },

    /// The file holds nothing.
    #[error("config file `{}` is empty", path.display())]
    Empty {
        /// The path, as it was given.
        path: PathBuf,
    },

    /// The text is neither YAML nor JSON.
    #[error("`{}:{}`, column {}: {}", path.display(), error.line, error.column, error.problem)]
    Syntax {
        /// The path, as it was given.
        path: PathBuf,
        /// The first mistake and its place. The message says all of it, so it is no cause besides.
        error: SyntaxError,
    },

    /// The file holds something else than keys with values.
    #[error("config file `{}`: expected `key: value` lines, found {found}", path.display())]
    NotAMap {
        /// The path, as it was given.
        path: PathBuf,
        /// What it holds, in words.
        found: String,
    },

    /// A key that stands in a map twice.
    #[error("`{}:{line}`: key `{key}` stands there already in line {first_line}", path.display())]
    Duplicate {
        /// The path, as it was given.
        path: PathBuf,
        /// The key.
        key: String,
        /// Line of the second one, from 1.
        line: usize,
        /// Line of the first one, from 1.
        first_line: usize,
    },

    /// Keys that mean nothing.
    #[error("config file `{}` has unknown keys: {}", path.display(), Listed(keys))]
    UnknownKeys {
        /// The path, as it was given.
        path: PathBuf,
        /// The keys, sorted by name.
        keys: Vec<UnknownKey>,
    },

    /// A key whose value cannot be what it is.
    #[error(
        "`{}:{}`: `{}`: expected {}, found {}",
        path.display(), wrong.line, wrong.key, wrong.expected, wrong.found
    )]
    WrongValue {
        /// The path, as it was given.
        path: PathBuf,
        /// The value, and what is wrong with it.
        wrong: Box<WrongValue>,
    },

    /// A key that must be there and is not.
    #[error("config file `{}` has no key `{key}`: expected {expected}", path.display())]
    MissingKey {
        /// The path, as it was given.
        path: PathBuf,
        /// The key.
        key: String,
        /// What must stand there, in words.
        expected: String,
    },
}

impl ConfigError {
    /// The error for a value that is not what its key asks for.
    ///
    /// `choices` are the texts that are allowed, if there is a list of them: the one that is most
    /// like the value is proposed.
    pub fn wrong_value<'a>(
        path: impl Into<PathBuf>,
        key: impl Into<String>,
        value: &Node,
        expected: impl Into<String>,
        choices: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let proposed = value.text().and_then(|text| nearest(&text, choices));
        Self::WrongValue {
            path: path.into(),
            wrong: Box::new(WrongValue {
                line: value.line,
                column: value.column,
                key: key.into(),
                found: value.describe(),
                expected: expected.into(),
                nearest: proposed.map(str::to_owned),
            }),
        }
    }

    /// The error for keys that mean nothing, in any order.
    pub fn unknown_keys(path: impl Into<PathBuf>, mut keys: Vec<UnknownKey>) -> Self {
        keys.sort();
        Self::UnknownKeys {
            path: path.into(),
            keys,
        }
    }

    /// The line that the error is about, from 1; `None` if it is about the whole file.
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::Syntax { error, .. } => Some(error.line),
            Self::Duplicate { line, .. } => Some(*line),
            Self::WrongValue { wrong, .. } => Some(wrong.line),
            Self::UnknownKeys { keys, .. } => keys.iter().map(|key| key.line).min(),
            _ => None,
        }
    }
}

impl Hint for ConfigError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Missing { .. } => {
                "correct the path, or write a config file with `accelerate config`".to_owned()
            }
            Self::Unreadable { .. } => return None,
            Self::TooLarge { .. } => {
                "give the path of a file that `accelerate config` wrote".to_owned()
            }
            Self::Empty { .. } | Self::NotAMap { .. } => {
                "write a config file with `accelerate config`".to_owned()
            }
            Self::Syntax { error, .. } => format!("correct line {} of the file", error.line),
            Self::Duplicate { line, .. } => format!("delete one of them, such as line {line}"),
            Self::UnknownKeys { keys, .. } => proposals(keys),
            Self::WrongValue { wrong, .. } => {
                let nearest = wrong.nearest.as_ref();
                return nearest.map(|nearest| format!("did you mean `{nearest}`?"));
            }
            Self::MissingKey { key, .. } => format!("add a line `{key}: ...`"),
        })
    }
}

fn proposals(keys: &[UnknownKey]) -> String {
    let named: Vec<_> = keys
        .iter()
        .filter_map(|UnknownKey { key, nearest, .. }| Some((key, nearest.as_ref()?)))
        .map(|(key, nearest)| format!("`{nearest}` instead of `{key}`"))
        .collect();
    match named.is_empty() {
        true => "delete these lines, or correct the names of the keys".to_owned(),
        false => format!("did you mean {}?", named.join(", ")),
    }
}

/// A value that is not what its key asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongValue {
    /// Line of the value, from 1.
    pub line: usize,
    /// Column of the value, from 1.
    pub column: usize,
    /// The key; inside a section with the section's name and a dot in front.
    pub key: String,
    /// What stands there, in words.
    pub found: String,
    /// What may stand there, in words.
    pub expected: String,
    /// The allowed value that may have been meant.
    pub nearest: Option<String>,
}

/// A key that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnknownKey {
    /// The key; inside a section with the section's name and a dot in front.
    pub key: String,
    /// Its line, from 1.
    pub line: usize,
    /// The known key that is most like it.
    pub nearest: Option<String>,
}

impl UnknownKey {
    /// A key that none of the `known` ones is.
    pub fn new<'a>(
        key: impl Into<String>,
        line: usize,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let key = key.into();
        let nearest = nearest(&key, known).map(str::to_owned);
        Self { key, line, nearest }
    }
}

/// Keys and their lines, one after another.
struct Listed<'a>(&'a [UnknownKey]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, UnknownKey { key, line, .. }) in self.0.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}`{key}` (line {line})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml::parse;

    #[test]
    fn unknown_keys_are_sorted_and_each_has_its_line_and_a_proposal() {
        let known = ["num_processes", "gpu_ids"];
        let error = ConfigError::unknown_keys(
            "train.yaml",
            vec![
                UnknownKey::new("num_process", 3, known),
                UnknownKey::new("invalid_key", 9, known),
            ],
        );
        assert_eq!(
            error.to_string(),
            "config file `train.yaml` has unknown keys: `invalid_key` (line 9), `num_process` (line 3)"
        );
        let hint = "did you mean `num_processes` instead of `num_process`?";
        assert_eq!(error.hint().as_deref(), Some(hint));
        assert_eq!(error.line(), Some(3));
    }

    #[test]
    fn a_wrong_value_says_what_stands_there_and_what_may() {
        let node = parse("\n  bf_16").unwrap();
        let choices = ["no", "fp16", "bf16"];
        let error = ConfigError::wrong_value(
            "train.yaml",
            "mixed_precision",
            &node,
            "one of `no`, `fp16`, `bf16`",
            choices,
        );
        assert_eq!(
            error.to_string(),
            "`train.yaml:2`: `mixed_precision`: expected one of `no`, `fp16`, `bf16`, found the text `bf_16`"
        );
        assert_eq!(error.hint().as_deref(), Some("did you mean `bf16`?"));
    }
}
