//! Keys that change which tokens come out and are not built here.

use serde::Deserialize;
use serde_json::Value;

use super::checks::refused;
use crate::Result;

/// What a configuration asks for that nobody here can do.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct ForeignKeys {
    num_beam_groups: Option<Value>,
    penalty_alpha: Option<Value>,
    dola_layers: Option<Value>,
    constraints: Option<Value>,
    force_words_ids: Option<Value>,
    guidance_scale: Option<f64>,
    watermarking_config: Option<Value>,
    token_healing: Option<bool>,
    stop_strings: Option<Value>,
}

impl ForeignKeys {
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for the first key that asks for something.
    pub(super) fn check(&self) -> Result<()> {
        let given = |value: &Option<Value>| value.is_some();
        let groups = self.num_beam_groups.as_ref();
        let keys = [
            (
                "num_beam_groups",
                groups.is_some_and(|groups| groups.as_i64() != Some(1)),
            ),
            ("penalty_alpha", given(&self.penalty_alpha)),
            ("dola_layers", given(&self.dola_layers)),
            ("constraints", given(&self.constraints)),
            ("force_words_ids", given(&self.force_words_ids)),
            (
                "guidance_scale",
                self.guidance_scale.is_some_and(|scale| scale != 1.0),
            ),
            ("watermarking_config", given(&self.watermarking_config)),
            ("token_healing", self.token_healing == Some(true)),
        ];
        if let Some((key, _)) = keys.into_iter().find(|(_, asked)| *asked) {
            let expected = "to be absent: it is not built here";
            return Err(refused(key, expected, &"a value"));
        }
        if given(&self.stop_strings) {
            // Text needs a tokenizer, which generation does not know.
            let expected = "to be absent: give them to `StopStrings`";
            return Err(refused("stop_strings", expected, &"a value"));
        }
        Ok(())
    }
}
