//! The settings in force.

use std::collections::BTreeMap;

use super::{AnyKey, Given, Key, KeyEntry, Layer, Origin, Sourced, TABLE};
use crate::{config::Value, env::EnvOverlay};

static DEFAULT: Origin = Origin::Default;

/// The settings in force, each with where it came from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    values: BTreeMap<&'static str, Given>,
}

impl Settings {
    /// Lays sources over each other: for each setting the first source that says something counts,
    /// then the default of the table.
    pub fn resolve(layers: impl IntoIterator<Item = Layer>) -> Self {
        let mut values: BTreeMap<&'static str, Given> = BTreeMap::new();
        for layer in layers {
            for (name, given) in layer.iter() {
                values.entry(name).or_insert_with(|| given.clone());
            }
        }
        Self { values }
    }

    /// The value of a setting, its default included; `None` if it has neither.
    pub fn get<T>(&self, key: &Key<T>) -> Option<T> {
        match self.values.get(key.name()) {
            Some(given) => key.typed(&given.value),
            None => key.default(),
        }
    }

    /// The value of a setting and where it came from.
    pub fn sourced<T>(&self, key: &Key<T>) -> Option<Sourced<T>> {
        let value = self.get(key)?;
        let origin = self.origin(key).clone();
        Some(Sourced { value, origin })
    }

    /// Whether a switch is on. A switch that nobody set is off.
    pub fn is_on(&self, key: &Key<bool>) -> bool {
        self.get(key).unwrap_or(false)
    }

    /// The value of a setting if somebody chose it: by flag, variable or file.
    pub fn given<T>(&self, key: &Key<T>) -> Option<Sourced<T>> {
        self.sourced(key)
            .filter(|sourced| sourced.origin.is_given())
    }

    /// Where the value of a setting came from.
    pub fn origin<T>(&self, key: &Key<T>) -> &Origin {
        match self.values.get(key.name()) {
            Some(given) => &given.origin,
            None => &DEFAULT,
        }
    }

    /// Every setting of the table with its value, where it has one, and where that came from.
    pub fn iter(&self) -> impl Iterator<Item = (&'static KeyEntry, Option<Value>, &Origin)> {
        TABLE.iter().map(|key| {
            let entry = key.entry();
            match self.values.get(entry.name) {
                Some(given) => (entry, Some(given.value.clone()), &given.origin),
                None => (entry, default_value(*key), &DEFAULT),
            }
        })
    }

    /// What the variables of these settings tell a process: those that have a value, by default or
    /// given.
    pub fn export(&self, is_wanted: impl Fn(&KeyEntry) -> bool) -> EnvOverlay {
        let mut overlay = EnvOverlay::new();
        for key in TABLE.iter().filter(|key| is_wanted(key.entry())) {
            let given = self
                .values
                .get(key.entry().name)
                .map(|given| given.value.clone());
            let value = given.or_else(|| default_value(*key));
            if let Some((name, text)) = value.and_then(|value| key.export(&value)) {
                overlay.set_text(name, text);
            }
        }
        overlay
    }

    /// Replaces a value, keeping the rule that who decided it is known.
    pub fn put(&mut self, name: &'static str, given: Given) {
        self.values.insert(name, given);
    }
}

fn default_value(key: &dyn AnyKey) -> Option<Value> {
    let text = key.entry().default?;
    key.canonical(&Value::from(text))
}
