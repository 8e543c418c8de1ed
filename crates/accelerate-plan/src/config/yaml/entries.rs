//! A map while it is read: no key twice, merged entries behind the map's own.

use std::collections::{HashMap, hash_map};

use super::{Node, NodeKind, Problem, SyntaxError};

/// The key that merges other maps.
const MERGE: &str = "<<";

/// The entries of one map.
#[derive(Debug, Default)]
pub(in crate::config) struct Entries {
    own: Vec<(Node, Node)>,
    merged: Vec<(Node, Node)>,
    /// Text of each own key, with its line.
    lines: HashMap<String, usize>,
}

impl Entries {
    /// Adds an entry.
    ///
    /// # Errors
    /// [`Problem::DuplicateKey`], [`Problem::KeyNotScalar`].
    pub(in crate::config) fn add(&mut self, key: Node, value: Node) -> Result<(), SyntaxError> {
        let (line, column) = (key.line, key.column);
        let Some(text) = key.text() else {
            return Err(Problem::KeyNotScalar { found: key.sort() }.at(line, column));
        };
        if let Some(first_line) = self.lines.insert(text.clone().into_owned(), line) {
            let key = text.into_owned();
            return Err(Problem::DuplicateKey { key, first_line }.at(line, column));
        }
        self.own.push((key, value));
        Ok(())
    }

    /// Adds an entry; the key `<<` without quotes adds the entries of the maps it names.
    ///
    /// # Errors
    /// As [`Entries::add`], and [`Problem::NothingToMerge`].
    pub(super) fn add_or_merge(&mut self, key: Node, value: Node) -> Result<(), SyntaxError> {
        if key.source.as_deref() != Some(MERGE) {
            return self.add(key, value);
        }
        match value.kind {
            NodeKind::List(maps) => maps.into_iter().try_for_each(|map| self.merge(map)),
            _ => self.merge(value),
        }
    }

    fn merge(&mut self, map: Node) -> Result<(), SyntaxError> {
        let NodeKind::Map(entries) = map.kind else {
            let found = map.describe();
            return Err(Problem::NothingToMerge { found }.at(map.line, map.column));
        };
        self.merged.extend(entries);
        Ok(())
    }

    /// The map: its own entries, then those merged entries whose key it does not have yet.
    pub(in crate::config) fn into_kind(self) -> NodeKind {
        let Self {
            mut own,
            merged,
            mut lines,
        } = self;
        for (key, value) in merged {
            let text = key.text().unwrap_or_default().into_owned();
            if let hash_map::Entry::Vacant(place) = lines.entry(text) {
                place.insert(key.line);
                own.push((key, value));
            }
        }
        NodeKind::Map(own)
    }
}
