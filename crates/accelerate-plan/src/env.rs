//! The environment protocol: what a launcher tells its processes, and what a user may set.
//!
//! [`TABLE`] lists every variable of the protocol. Each one is a typed constant such as
//! [`USE_CPU`]; [`Environment::get`] reads it.
//!
//! ```
//! use accelerate_plan::env::{Environment, USE_CPU};
//!
//! let env = Environment::from_pairs([("ACCELERATE_USE_CPU", "yes")]);
//! assert_eq!(env.get(&USE_CPU)?, Some(true));
//! # Ok::<(), accelerate_plan::Error>(())
//! ```

pub(crate) mod format;
mod overlay;
mod table;
mod variable;

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::PathBuf,
};

pub use format::{Format, Refused, truth};
pub use overlay::EnvOverlay;
pub use table::*;
pub use variable::{Entry, Found, Inheritance, Variable, Writer};

use crate::{Error, Result};

/// A snapshot of environment variables.
///
/// Reading goes through a snapshot, so that a process sees one consistent set and a test can bring
/// its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    /// The variables of this process, as they are now.
    pub fn from_process() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
        }
    }

    /// The given variables and nothing else. The last one of a name wins.
    pub fn from_pairs<K, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Self
    where
        K: Into<OsString>,
        V: Into<OsString>,
    {
        let variables = pairs
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()));
        Self {
            variables: variables.collect(),
        }
    }

    /// This environment as a child would see it that was started with `overlay`.
    pub fn with(mut self, overlay: &EnvOverlay) -> Self {
        let pairs = overlay
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        self.variables.extend(pairs);
        self
    }

    /// All variables, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// The value of a variable; `None` if it is not set, is empty, or holds a text that its format
    /// counts as not set.
    ///
    /// # Errors
    /// [`Error::InvalidVariable`] if the text is not allowed, [`Error::NotText`] if it is not UTF-8.
    pub fn get<T>(&self, variable: &Variable<T>) -> Result<Option<T>> {
        let entry = variable.entry();
        let Some(raw) = self.raw(entry.name) else {
            return Ok(None);
        };
        let text = raw.to_str().ok_or_else(|| Error::NotText {
            variable: entry.name,
            value: raw.to_string_lossy().into_owned(),
        })?;
        variable
            .parse(text)
            .map(Some)
            .or_else(|refused| match refused {
                format::Refused::CountsAsUnset => Ok(None),
                format::Refused::Invalid => Err(Error::InvalidVariable {
                    variable: entry.name,
                    value: text.to_owned(),
                    expected: entry.expected,
                }),
            })
    }

    /// The value of a variable, or its default from the table; `None` if it has no default either.
    ///
    /// # Errors
    /// As [`Environment::get`].
    pub fn get_or_default<T>(&self, variable: &Variable<T>) -> Result<Option<T>> {
        Ok(self.get(variable)?.or_else(|| variable.default_value()))
    }

    /// The first of several variables that is set, with its name.
    ///
    /// # Errors
    /// As [`Environment::get`], for the first variable that cannot be read.
    pub fn first<T>(&self, variables: &[&'static Variable<T>]) -> Result<Option<Found<T>>> {
        for variable in variables {
            if let Some(value) = self.get(variable)? {
                return Ok(Some(Found {
                    variable: variable.name(),
                    value,
                }));
            }
        }
        Ok(None)
    }

    /// Whether a variable is set to an empty text. [`Environment::get`] takes that for "not set", but
    /// a few programs do not: no name in `CUDA_VISIBLE_DEVICES` means no device.
    pub fn is_blank<T>(&self, variable: &Variable<T>) -> bool {
        let value = self.variables.get(OsStr::new(variable.name()));
        value.is_some_and(|value| value.is_empty())
    }

    /// The folders in which programs are searched (`PATH`), in order.
    pub fn search_path(&self) -> Vec<PathBuf> {
        self.raw("PATH")
            .map(|path| std::env::split_paths(path).collect())
            .unwrap_or_default()
    }

    fn raw(&self, name: &str) -> Option<&OsStr> {
        let value = self.variables.get(OsStr::new(name))?;
        (!value.is_empty()).then_some(value.as_os_str())
    }
}

#[cfg(test)]
mod tests;
