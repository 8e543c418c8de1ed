//! What a configuration says beyond what this library uses.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Keys that are written again on every save, from the model itself.
const DERIVED: [&str; 6] = [
    "architectures",
    "dtype",
    "label2id",
    "model_type",
    "torch_dtype",
    "transformers_version",
];

/// Keys of a `config.json` that a configuration has no field for, kept for writing it back.
///
/// Put it into the configuration with `#[serde(flatten)]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct OtherKeys(Map<String, Value>);

impl OtherKeys {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }
}

impl<'de> Deserialize<'de> for OtherKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut keys = Map::deserialize(deserializer)?;
        for key in DERIVED {
            keys.remove(key);
        }
        Ok(Self(keys))
    }
}
