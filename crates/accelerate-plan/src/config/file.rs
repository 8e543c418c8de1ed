//! From a path to the keys of a config file.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    str::Utf8Error,
};

use super::{ConfigError, ConfigFormat, Node, NodeKind, Problem, SyntaxError, Value, json, yaml};

/// How many bytes a config file may have.
const LIMIT: u64 = 1 << 20;

/// A config file that was read, before anything is known about its keys.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RawFile {
    /// Where it was read from, as given.
    pub path: PathBuf,
    /// Its top-level keys with their values, in the order of the file. No key comes twice.
    pub entries: Vec<Entry>,
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key, as it was written.
    pub key: String,
    /// The line of the key, from 1.
    pub line: usize,
    /// The value.
    pub value: Node,
}

impl RawFile {
    /// Reads a file: JSON if its name ends in `.json`, else YAML. A file with another name that
    /// is not YAML but is JSON is read too.
    ///
    /// # Errors
    /// - [`ConfigError::Missing`], [`ConfigError::Unreadable`], [`ConfigError::TooLarge`] if there
    ///   is no text to be had.
    /// - [`ConfigError::Empty`], [`ConfigError::Syntax`], [`ConfigError::Duplicate`],
    ///   [`ConfigError::NotAMap`] if the text is not a map.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let bytes = read_limited(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ConfigError::Missing { path: path.into() },
            _ => ConfigError::Unreadable {
                path: path.into(),
                source,
            },
        })?;
        if bytes.len() as u64 > LIMIT {
            return Err(ConfigError::TooLarge {
                path: path.into(),
                limit: LIMIT,
            });
        }
        match str::from_utf8(&bytes) {
            Ok(text) => Self::parse(path, text),
            Err(error) => Err(syntax(path, not_utf8(&bytes, error))),
        }
    }

    /// Reads a text as if it were the content of the file at `path`.
    ///
    /// # Errors
    /// As [`RawFile::read`], from [`ConfigError::Empty`] on.
    pub fn parse(path: impl Into<PathBuf>, text: &str) -> Result<Self, ConfigError> {
        let path = path.into();
        if text.trim_start_matches('\u{feff}').trim().is_empty() {
            return Err(ConfigError::Empty { path });
        }
        let root = parse(&path, text).map_err(|error| syntax(&path, error))?;
        match root.kind {
            NodeKind::Map(entries) => Ok(Self {
                entries: entries.into_iter().map(Entry::new).collect(),
                path,
            }),
            NodeKind::Null => Err(ConfigError::Empty { path }),
            _ => Err(ConfigError::NotAMap {
                found: root.describe(),
                path,
            }),
        }
    }

    /// The entry of a key.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The content without positions: always a [`Value::Map`].
    pub fn to_value(&self) -> Value {
        let entries = self.entries.iter();
        Value::Map(
            entries
                .map(|entry| (entry.key.clone(), entry.value.to_value()))
                .collect(),
        )
    }
}

impl Entry {
    fn new((key, value): (Node, Node)) -> Self {
        Self {
            key: key.text().unwrap_or_default().into_owned(),
            line: key.line,
            value,
        }
    }
}

/// Reads a little more than the limit at most, whatever the path leads to.
fn read_limited(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LIMIT + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn parse(path: &Path, text: &str) -> Result<Node, SyntaxError> {
    if ConfigFormat::of(path) == ConfigFormat::Json {
        return json::parse(text);
    }
    // The original writes JSON under the name of the default file. Nearly all JSON is YAML: what is
    // not (a character as a pair of surrogates) gets a second chance.
    yaml::parse(text).or_else(|error| match text.trim_start().starts_with('{') {
        true => json::parse(text).map_err(|_| error),
        false => Err(error),
    })
}

fn syntax(path: &Path, error: SyntaxError) -> ConfigError {
    let (path, line) = (path.into(), error.line);
    match error.problem {
        Problem::DuplicateKey { key, first_line } => ConfigError::Duplicate {
            path,
            key,
            line,
            first_line,
        },
        _ => ConfigError::Syntax { path, error },
    }
}

/// The place of the first byte that is no text.
fn not_utf8(bytes: &[u8], error: Utf8Error) -> SyntaxError {
    let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
    let last = before.rsplit('\n').next().unwrap_or_default();
    Problem::NotUtf8.at(before.matches('\n').count() + 1, last.chars().count() + 1)
}

#[cfg(test)]
mod tests;
