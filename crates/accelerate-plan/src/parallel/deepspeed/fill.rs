//! Values that a program fills in by name.

use super::{
    DeepSpeedConfig,
    ambiguity::is_same,
    document::is_auto,
};
use crate::{
    config::{Value, inline_json},
    parallel::{Mismatch, PlanError},
    settings::Origin,
};

impl DeepSpeedConfig {
    /// Fills in the keys of `values` that are `auto`, by their dotted names. Keys that the config does
    /// not have are left out. With `must_match`, a key that has another value already is a mistake.
    ///
    /// # Errors
    /// [`PlanError::Mismatches`] with all such keys; nothing is filled in then.
    ///
    /// # Source
    /// `fill_match` and `deepspeed_config_process`. Differs: an `auto` that no value is given for is
    /// left for [`DeepSpeedConfig::prepare`], which tells all of them.
    pub fn fill(&mut self, values: &[(&str, Value)], must_match: bool) -> Result<(), PlanError> {
        let document = &self.document;
        let mismatches = values.iter().filter_map(|(key, said)| {
            let found = document.get(key)?;
            let differs = !is_auto(found) && !is_same(found, said);
            (must_match && differs).then(|| Mismatch {
                key: (*key).to_owned(),
                found: inline_json(found),
                origin: document.origin(key),
                said: inline_json(said),
            })
        });
        let mismatches: Vec<_> = mismatches.collect();
        if !mismatches.is_empty() {
            return Err(PlanError::Mismatches { mismatches });
        }
        for (key, said) in values {
            if self.document.is_auto(key) {
                self.document.set(key, said.clone(), Origin::Program);
            }
        }
        Ok(())
    }
}
