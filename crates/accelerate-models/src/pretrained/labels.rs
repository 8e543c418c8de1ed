//! The names of a classifier's labels.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// `id2label` of a configuration: the name of each label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Labels(BTreeMap<i64, String>);

impl Labels {
    /// `count` labels, named `LABEL_0` and so on.
    pub fn numbered(count: usize) -> Self {
        Self(
            (0..count)
                .map(|label| (label as i64, format!("LABEL_{label}")))
                .collect(),
        )
    }

    /// How many labels there are.
    pub fn count(&self) -> i64 {
        self.0.len() as i64
    }

    /// The name of a label.
    pub fn name(&self, label: i64) -> Option<&str> {
        self.0.get(&label).map(String::as_str)
    }

    /// All labels with their names, by number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (i64, &str)> {
        self.0.iter().map(|(&label, name)| (label, name.as_str()))
    }

    /// These labels if they are `count`, else [numbered](Self::numbered) ones.
    #[must_use]
    pub fn or_numbered(self, count: usize) -> Self {
        if count == self.0.len() {
            self
        } else {
            Self::numbered(count)
        }
    }

    /// Adds `label2id`, which the original writes beside `id2label`.
    pub fn write_reversed(&self, config: &mut Map<String, Value>) {
        let reversed = self
            .iter()
            .map(|(label, name)| (name.to_owned(), label.into()));
        config.insert("label2id".to_owned(), Value::Object(reversed.collect()));
    }
}

/// Two labels, as the original has it.
impl Default for Labels {
    fn default() -> Self {
        Self::numbered(2)
    }
}

impl FromIterator<String> for Labels {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        Self((0..).zip(names).collect())
    }
}

/// JSON keys are text, so the numbers come as such.
impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let by_text = BTreeMap::<String, String>::deserialize(deserializer)?;
        let number = |id: &str| {
            id.parse()
                .map_err(|_| serde::de::Error::custom(format!("`{id}` is no number of a label")))
        };
        by_text
            .into_iter()
            .map(|(id, label)| Ok((number(&id)?, label)))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}
