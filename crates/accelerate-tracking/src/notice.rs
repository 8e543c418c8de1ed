//! Saying things once.

use std::collections::BTreeSet;

use crate::value::Value;

/// Remembers what was said.
#[derive(Debug, Default)]
pub(crate) struct Once {
    said: BTreeSet<String>,
}

impl Once {
    /// Whether this is new.
    pub(crate) fn is_new(&mut self, what: &str) -> bool {
        !self.said.contains(what) && self.said.insert(what.to_owned())
    }

    /// Warns of a value that a tracker does not take: once for each name.
    pub(crate) fn value(&mut self, tracker: &str, name: &str, value: &Value) {
        if self.is_new(name) {
            tracing::warn!(
                "`{tracker}` does not take {} as a value: `{name}` is left out there",
                value.kind()
            );
        }
    }
}
