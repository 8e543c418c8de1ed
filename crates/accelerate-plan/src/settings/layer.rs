//! What one source says.

use std::collections::BTreeMap;

use super::{AnyKey, Origin, TABLE};
use crate::{Error, Result, config::Value, env::Environment};

/// A value that a source gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    /// The value, in the spelling of the table.
    pub value: Value,
    /// Where it stands.
    pub origin: Origin,
}

/// What one source says about some of the settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layer {
    values: BTreeMap<&'static str, Given>,
}

impl Layer {
    /// What environment variables say. A variable that is set to nothing says nothing.
    ///
    /// # Errors
    /// As [`Environment::get`].
    pub fn from_env(env: &Environment) -> Result<Self> {
        let mut layer = Self::default();
        for key in TABLE {
            let Some(variable) = key.entry().variable else {
                continue;
            };
            if let Some(value) = key.read_env(env)? {
                layer.insert(*key, value, Origin::Variable(variable));
            }
        }
        Ok(layer)
    }

    /// Gives a setting a value. The last one counts; a repeated setting gets all of them.
    ///
    /// # Errors
    /// [`Error::InvalidSetting`] if the value is not allowed.
    pub fn give(&mut self, key: &dyn AnyKey, value: &Value, origin: Origin) -> Result<()> {
        match key.canonical(value) {
            Some(canonical) => {
                self.insert(key, canonical, origin);
                Ok(())
            }
            None => Err(Error::InvalidSetting {
                name: key.entry().name,
                value: crate::config::inline_json(value),
                expected: key.entry().expected,
                origin,
            }),
        }
    }

    /// What is said about a setting.
    pub fn get(&self, name: &str) -> Option<&Given> {
        self.values.get(name)
    }

    /// Everything that is said, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Given)> {
        self.values.iter().map(|(name, given)| (*name, given))
    }

    fn insert(&mut self, key: &dyn AnyKey, value: Value, origin: Origin) {
        self.values
            .insert(key.entry().name, Given { value, origin });
    }
}
