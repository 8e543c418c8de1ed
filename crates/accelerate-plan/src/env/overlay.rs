//! What a child process is told on top of what it inherits.

use super::Variable;

/// Variables for a child process, in the order in which they were set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvOverlay {
    pairs: Vec<(&'static str, String)>,
}

impl EnvOverlay {
    /// No variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a variable, or replaces its value.
    pub fn set<T>(&mut self, variable: &Variable<T>, value: &T) {
        self.set_text(variable.name(), variable.render(value));
    }

    /// Adds a variable by the text that it is to hold, or replaces its text.
    pub fn set_text(&mut self, name: &'static str, text: String) {
        match self.pairs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = text,
            None => self.pairs.push((name, text)),
        }
    }

    /// Adds all variables of `other`, replacing those that are here already.
    pub fn extend(&mut self, other: &Self) {
        for (name, text) in &other.pairs {
            self.set_text(name, text.clone());
        }
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.pairs
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
    }

    /// The text set for a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Whether there is no variable.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}
