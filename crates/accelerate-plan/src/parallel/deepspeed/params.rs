//! The parameters of what DeepSpeed's config names.

use indexmap::IndexMap;

use super::document::{Document, dotted, flag, is_auto, number};
use crate::{
    config::{Value, nearest},
    parallel::PlanError,
};

type Result<T> = std::result::Result<T, PlanError>;

/// The parameters of an optimizer or a schedule.
pub(super) struct Params<'a> {
    document: &'a Document,
    map: &'static str,
}

impl<'a> Params<'a> {
    pub(super) const fn new(document: &'a Document, map: &'static str) -> Self {
        Self { document, map }
    }

    /// Refuses parameters with other names than these.
    pub(super) fn only(&self, known: &[&str]) -> Result<()> {
        let keys = self.document.keys(self.map);
        let Some(unknown) = keys.iter().find(|key| !known.contains(&key.as_str())) else {
            return Ok(());
        };
        let alike = nearest(unknown, known.iter().copied());
        let expected = match alike {
            Some(alike) => format!(
                "`{alike}`, or another parameter of it: `{}`",
                known.join("`, `")
            ),
            None => format!("a parameter of it: `{}`", known.join("`, `")),
        };
        Err(self.document.refuse(&dotted(self.map, unknown), expected))
    }

    pub(super) fn number(&self, name: &str, otherwise: f64) -> Result<f64> {
        self.document.number(&dotted(self.map, name), otherwise)
    }

    pub(super) fn flag(&self, name: &str, otherwise: bool) -> Result<bool> {
        let key = dotted(self.map, name);
        let found = self.document.read(&key, "`true` or `false`", flag)?;
        Ok(found.unwrap_or(otherwise))
    }

    /// Refuses what this library does not do, where it is asked for.
    pub(super) fn off(&self, name: &str) -> Result<()> {
        match self.flag(name, false)? {
            false => Ok(()),
            true => Err(self
                .document
                .refuse(&dotted(self.map, name), "`false`: it is not done here")),
        }
    }

    pub(super) fn pair(&self, name: &str, otherwise: (f64, f64)) -> Result<(f64, f64)> {
        let key = dotted(self.map, name);
        let found = self
            .document
            .read(&key, "a list of two numbers", |value| match value {
                Value::List(items) => match items.as_slice() {
                    [first, second] => Some((number(first)?, number(second)?)),
                    _ => None,
                },
                _ => None,
            })?;
        Ok(found.unwrap_or(otherwise))
    }

    /// Everything as it stands, but for what nobody said.
    pub(super) fn all(&self) -> IndexMap<String, Value> {
        let keys = self.document.keys(self.map).into_iter();
        keys.filter_map(|key| {
            let value = self.document.get(&dotted(self.map, &key))?;
            (!is_auto(value)).then(|| (key, value.clone()))
        })
        .collect()
    }
}
