//! Several configs with names, of which one is active.

use indexmap::IndexMap;

use super::DeepSpeedConfig;
use crate::{config::nearest, parallel::PlanError};

/// Several configs by name, one of which is active: a teacher that is only evaluated beside a student,
/// or models that have nothing to do with each other.
///
/// # Source
/// `deepspeed_plugins` and `select_deepspeed_plugin`. Differs: a config has no way to select itself.
#[derive(Debug, Clone, PartialEq)]
pub struct DeepSpeedPlugins {
    configs: IndexMap<String, DeepSpeedConfig>,
    active: usize,
}

impl DeepSpeedPlugins {
    /// Configs by name. The first one is active.
    ///
    /// # Errors
    /// [`PlanError::NoPlugin`] if there is none.
    pub fn new(
        configs: impl IntoIterator<Item = (String, DeepSpeedConfig)>,
    ) -> Result<Self, PlanError> {
        let configs: IndexMap<_, _> = configs.into_iter().collect();
        match configs.is_empty() {
            true => Err(PlanError::NoPlugin),
            false => Ok(Self { configs, active: 0 }),
        }
    }

    /// A single config, under the name `default`.
    pub fn one(config: DeepSpeedConfig) -> Self {
        Self {
            configs: IndexMap::from([("default".to_owned(), config)]),
            active: 0,
        }
    }

    /// Name and config of the active one.
    pub fn active(&self) -> Option<(&str, &DeepSpeedConfig)> {
        let (name, config) = self.configs.get_index(self.active)?;
        Some((name, config))
    }

    /// Makes another one active.
    ///
    /// # Errors
    /// [`PlanError::UnknownPlugin`] with all names.
    pub fn select(&mut self, name: &str) -> Result<(), PlanError> {
        match self.configs.get_index_of(name) {
            Some(index) => {
                self.active = index;
                Ok(())
            }
            None => Err(self.unknown(name)),
        }
    }

    /// The config with a name.
    ///
    /// # Errors
    /// [`PlanError::UnknownPlugin`] with all names.
    pub fn get(&self, name: &str) -> Result<&DeepSpeedConfig, PlanError> {
        self.configs.get(name).ok_or_else(|| self.unknown(name))
    }

    /// The names, in the order in which they were given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.configs.keys().map(String::as_str)
    }

    fn unknown(&self, name: &str) -> PlanError {
        PlanError::UnknownPlugin {
            name: name.to_owned(),
            known: self.names().map(str::to_owned).collect(),
            nearest: nearest(name, self.names()).map(str::to_owned),
        }
    }
}
