//! Rotary positions in configurations.

use accelerate::nn::{RotaryScaling, RotarySettings, YarnScaling};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::pretrained::ConfigChecks;

/// `rope_scaling` or `rope_parameters` of a configuration: how rotary positions are stretched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RopeParameters {
    /// The kind: `default`, `linear`, `dynamic`, `yarn` or `llama3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_type: Option<String>,
    /// The kind, as older configurations say it.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub old_type: Option<String>,
    /// The base of the wavelengths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_theta: Option<f64>,
    /// How far positions are stretched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// For `llama3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_freq_factor: Option<f64>,
    /// For `llama3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_freq_factor: Option<f64>,
    /// The longest sequence of the first training, for `llama3` and `yarn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_max_position_embeddings: Option<i64>,
    /// For `yarn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_factor: Option<f64>,
    /// For `yarn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta_fast: Option<f64>,
    /// For `yarn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta_slow: Option<f64>,
    /// For `yarn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mscale: Option<f64>,
    /// For `yarn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mscale_all_dim: Option<f64>,
    /// For `yarn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncate: Option<bool>,
    /// The part of each head that is turned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial_rotary_factor: Option<f64>,
}

/// What a configuration says about rotary positions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RopeKeys<'c> {
    pub(crate) checks: ConfigChecks,
    /// `rope_theta` beside the parameters.
    pub(crate) theta: Option<f64>,
    /// The base where nobody says one.
    pub(crate) default_theta: f64,
    /// `rope_scaling`, the older place of the parameters, which wins.
    pub(crate) scaling: Option<&'c RopeParameters>,
    /// `rope_parameters`.
    pub(crate) parameters: Option<&'c RopeParameters>,
    pub(crate) head_width: i64,
    pub(crate) max_positions: i64,
}

/// The rotary embedding that a configuration asks for.
pub(crate) fn rotary_settings(keys: RopeKeys<'_>) -> Result<RotarySettings> {
    let none = RopeParameters::default();
    let given = keys.scaling.or(keys.parameters).unwrap_or(&none);
    if let Some(part) = given.partial_rotary_factor.filter(|&part| part != 1.0) {
        return Err(keys.checks.refused("partial_rotary_factor", "1", &part));
    }
    let base = given
        .rope_theta
        .or(keys.theta)
        .unwrap_or(keys.default_theta);
    if !(base > 1.0 && base.is_finite()) {
        return Err(keys.checks.refused("rope_theta", "a number above 1", &base));
    }
    if keys.head_width < 2 || keys.head_width % 2 != 0 {
        let expected = "an even number of at least 2, for rotary positions";
        return Err(keys.checks.refused("head_dim", expected, &keys.head_width));
    }
    Ok(RotarySettings {
        width: keys.head_width,
        base,
        max_positions: keys.max_positions,
        scaling: given.scaling(keys.checks, keys.max_positions)?,
    })
}

/// The longest sequence; none where rotary positions stretch with it.
pub(crate) fn longest_sequence(rotary: &RotarySettings) -> Option<i64> {
    match rotary.scaling {
        RotaryScaling::Dynamic { .. } => None,
        _ => Some(rotary.max_positions),
    }
}

impl RopeParameters {
    fn scaling(&self, checks: ConfigChecks, max_positions: i64) -> Result<RotaryScaling> {
        let kind = self.rope_type.as_deref().or(self.old_type.as_deref());
        let required = |key, value: Option<f64>| match value {
            Some(value) if value > 0.0 => Ok(value),
            Some(value) => Err(checks.refused(key, "a number above 0", &value)),
            None => Err(checks.refused(key, "a number above 0", &"nothing")),
        };
        let factor = || match self.factor {
            Some(factor) if factor < 1.0 => Err(checks.refused("factor", "at least 1", &factor)),
            factor => required("factor", factor),
        };
        let original = self
            .original_max_position_embeddings
            .unwrap_or(max_positions);
        if original < 1 {
            let key = "original_max_position_embeddings";
            return Err(checks.refused(key, "at least 1", &original));
        }
        Ok(match kind {
            None | Some("default") => RotaryScaling::None,
            Some("linear") => RotaryScaling::Linear { factor: factor()? },
            Some("dynamic") => RotaryScaling::Dynamic { factor: factor()? },
            Some("llama3") => RotaryScaling::Llama3 {
                factor: factor()?,
                low_freq_factor: required("low_freq_factor", self.low_freq_factor)?,
                high_freq_factor: required("high_freq_factor", self.high_freq_factor)?,
                original_max_positions: original,
            },
            Some("yarn") => RotaryScaling::Yarn(self.yarn(
                match self.factor {
                    Some(_) => factor()?,
                    None => max_positions as f64 / original as f64,
                },
                original,
            )),
            Some(other) => {
                let expected = "`default`, `linear`, `dynamic`, `yarn` or `llama3`";
                return Err(checks.refused("rope_type", expected, &format!("`{other}`")));
            }
        })
    }

    fn yarn(&self, factor: f64, original: i64) -> YarnScaling {
        let usual = YarnScaling::new(factor, original);
        // 0 counts as absent, as in the original.
        let given = |value: Option<f64>, usual: f64| value.filter(|&v| v != 0.0).unwrap_or(usual);
        YarnScaling {
            attention_factor: self.attention_factor,
            beta_fast: given(self.beta_fast, usual.beta_fast),
            beta_slow: given(self.beta_slow, usual.beta_slow),
            mscale: self.mscale.zip(self.mscale_all_dim),
            truncate: self.truncate.unwrap_or(usual.truncate),
            ..usual
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(json: &str, theta: Option<f64>) -> Result<RotarySettings> {
        let scaling: RopeParameters = serde_json::from_str(json).unwrap();
        rotary_settings(RopeKeys {
            checks: ConfigChecks::of("Llama"),
            theta,
            default_theta: 10000.0,
            scaling: Some(&scaling),
            parameters: None,
            head_width: 8,
            max_positions: 64,
        })
    }

    #[test]
    fn both_ages_of_configurations_are_read() {
        let old = settings(r#"{"type": "linear", "factor": 2.0}"#, Some(500.0)).unwrap();
        assert_eq!(old.base, 500.0);
        assert_eq!(old.scaling, RotaryScaling::Linear { factor: 2.0 });
        let new = settings(r#"{"rope_type": "default", "rope_theta": 50.0}"#, None).unwrap();
        assert_eq!((new.base, new.scaling), (50.0, RotaryScaling::None));
    }

    #[test]
    fn what_cannot_be_is_told() {
        for (json, key) in [
            (r#"{"rope_type": "longrope"}"#, "rope_type"),
            (r#"{"rope_type": "linear"}"#, "factor"),
            (r#"{"rope_type": "dynamic", "factor": 0.5}"#, "factor"),
            (r#"{"rope_type": "llama3", "factor": 8}"#, "low_freq_factor"),
            (r#"{"partial_rotary_factor": 0.5}"#, "partial_rotary_factor"),
            (r#"{"rope_theta": 0}"#, "rope_theta"),
        ] {
            let message = settings(json, None).unwrap_err().to_string();
            assert!(message.contains(&format!("`{key}`")), "{json}: {message}");
        }
    }
}
