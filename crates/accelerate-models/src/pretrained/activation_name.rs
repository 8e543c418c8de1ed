//! Activation functions in configurations.

use std::fmt;

use accelerate::nn::ActivationFunction;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An activation function, read from and written as its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActivationName(pub ActivationFunction);

impl From<ActivationFunction> for ActivationName {
    fn from(function: ActivationFunction) -> Self {
        Self(function)
    }
}

impl From<ActivationName> for ActivationFunction {
    fn from(name: ActivationName) -> Self {
        name.0
    }
}

impl fmt::Display for ActivationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for ActivationName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

impl<'de> Deserialize<'de> for ActivationName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map(Self).map_err(serde::de::Error::custom)
    }
}
