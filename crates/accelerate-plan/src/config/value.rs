//! Plain data, as files hold it.

use indexmap::IndexMap;

/// A value of a config file, without its position.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    /// Nothing.
    #[default]
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(String),
    /// Values in order.
    List(Vec<Self>),
    /// Named values, in the order in which they were found.
    Map(IndexMap<String, Self>),
}

impl Value {
    /// Whether the value is nothing, or a map without entries: such keys are not written.
    pub fn is_absent(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Map(entries) => entries.is_empty(),
            _ => false,
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}
