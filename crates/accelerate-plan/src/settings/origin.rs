//! Where a value came from.

use std::{fmt, path::PathBuf, sync::Arc};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A flag of the command line, such as `--num_processes`.
    Flag(String),
    /// An environment variable.
    Variable(&'static str),
    /// A line of a config file.
    File {
        /// The file.
        path: Arc<PathBuf>,
        /// The line, from 1.
        line: usize,
    },
    /// The program, which gave the value in its code.
    Program,
    /// The machine, in words that say what was found there.
    Detected(String),
    /// The table of settings.
    Default,
}

impl Origin {
    /// Whether somebody chose the value: it was neither detected nor the default.
    pub fn is_given(&self) -> bool {
        matches!(
            self,
            Self::Flag(_) | Self::Variable(_) | Self::File { .. } | Self::Program
        )
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "flag `{flag}`"),
            Self::Variable(name) => write!(f, "variable `{name}`"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Program => f.write_str("the program"),
            Self::Detected(what) => write!(f, "detected: {what}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub origin: Origin,
}

impl<T> Sourced<T> {
    /// A value that nobody chose.
    pub const fn default_value(value: T) -> Self {
        Self {
            value,
            origin: Origin::Default,
        }
    }

    /// A value that the program chose.
    pub const fn by_program(value: T) -> Self {
        Self {
            value,
            origin: Origin::Program,
        }
    }
}
