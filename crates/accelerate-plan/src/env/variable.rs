//! One row of the table, typed.

use super::format::{Format, Refused};

/// Who writes a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// Our launcher, for the processes it starts. A user may set it too.
    Launcher,
    /// Another launcher that we understand: an MPI implementation.
    Mpi,
    /// The cluster manager that gave us the machine.
    Cluster,
    /// The user, or the surroundings of the process.
    User,
}

/// What happens to a value that the launcher itself was started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inheritance {
    /// It reaches the processes unless a flag says otherwise.
    Kept,
    /// The launcher puts its own value in place when it starts more than one process.
    Replaced,
}

/// What the table says about a variable, without its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Name in the environment.
    pub name: &'static str,
    /// Type, in a word or two.
    pub kind: &'static str,
    /// Which texts are allowed, in words.
    pub expected: &'static str,
    /// Text that stands for the variable when it is not set.
    pub default: Option<&'static str>,
    /// What the value means.
    pub meaning: &'static str,
    /// Who writes it.
    pub writer: Writer,
    /// Whether a value in the launcher's own environment reaches the processes.
    pub inheritance: Inheritance,
}

/// A variable of the protocol with values of type `T`.
#[derive(Debug)]
pub struct Variable<T: 'static> {
    entry: Entry,
    format: &'static Format<T>,
}

impl<T> Variable<T> {
    pub(super) const fn new(
        name: &'static str,
        format: &'static Format<T>,
        default: Option<&'static str>,
        meaning: &'static str,
        writer: Writer,
        inheritance: Inheritance,
    ) -> Self {
        let Format { kind, expected, .. } = *format;
        Self {
            entry: Entry {
                name,
                kind,
                expected,
                default,
                meaning,
                writer,
                inheritance,
            },
            format,
        }
    }

    /// The name in the environment.
    pub const fn name(&self) -> &'static str {
        self.entry.name
    }

    /// The row of the table.
    pub const fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The text that a child process is given for `value`.
    pub fn render(&self, value: &T) -> String {
        (self.format.render)(value)
    }

    pub(super) fn parse(&self, text: &str) -> Result<T, Refused> {
        (self.format.parse)(text.trim())
    }

    pub(super) fn default_value(&self) -> Option<T> {
        self.entry.default.and_then(|text| self.parse(text).ok())
    }
}

/// A value and the variable it was found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<T> {
    /// Name of the variable.
    pub variable: &'static str,
    /// Its value.
    pub value: T,
}
