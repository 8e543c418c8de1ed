//! A JSON object with every key it has.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// The entries of a JSON object in the order of the text.
///
/// Unlike a map, it does not hide that a key stands twice.
pub(crate) struct Entries<V>(pub(crate) Vec<(String, V)>);

impl<V> Entries<V> {
    /// A key that stands more than once, if there is one.
    pub(crate) fn duplicate(&self) -> Option<&str> {
        let mut seen = HashSet::with_capacity(self.0.len());
        self.0
            .iter()
            .map(|(key, _)| key.as_str())
            .find(|key| !seen.insert(*key))
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Entries<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

struct EntriesVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for EntriesVisitor<V> {
    type Value = Entries<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_duplicates_are_kept() {
        let entries: Entries<u8> = serde_json::from_str(r#"{"b":1,"a":2,"\u0062":3}"#).unwrap();
        assert_eq!(
            entries.0,
            [
                ("b".to_owned(), 1),
                ("a".to_owned(), 2),
                ("b".to_owned(), 3)
            ]
        );
        assert_eq!(entries.duplicate(), Some("b"));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        assert!(serde_json::from_str::<Entries<u8>>("[1]").is_err());
    }
}
