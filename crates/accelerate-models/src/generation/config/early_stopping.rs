//! When beam search ends.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// When beam search ends, for each prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EarlyStopping {
    /// When no better sequence is likely, judged from the length so far: `false`.
    #[default]
    Heuristic,
    /// When there are as many complete sequences as beams: `true`.
    Complete,
    /// When no better sequence is possible: `"never"`.
    Never,
}

impl Serialize for EarlyStopping {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Heuristic => serializer.serialize_bool(false),
            Self::Complete => serializer.serialize_bool(true),
            Self::Never => serializer.serialize_str("never"),
        }
    }
}

impl<'de> Deserialize<'de> for EarlyStopping {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::Bool(false) => Ok(Self::Heuristic),
            serde_json::Value::Bool(true) => Ok(Self::Complete),
            serde_json::Value::String(text) if text == "never" => Ok(Self::Never),
            other => Err(serde::de::Error::custom(format!(
                "`early_stopping`: expected `true`, `false` or `\"never\"`, found `{other}`"
            ))),
        }
    }
}
