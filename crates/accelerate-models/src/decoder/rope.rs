//! Rotary positions in configurations.

use std::sync::Once;

use accelerate::nn::{LongRopeScaling, RotaryScaling, RotarySettings, YarnScaling};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::pretrained::{ConfigChecks, OtherKeys};

/// `rope_scaling` or `rope_parameters` of a configuration: how rotary positions are stretched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RopeParameters {
    /// The kind: `default`, `linear`, `dynamic`, `yarn`, `longrope`, `llama3` or `proportional`.
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
    /// The longest sequence of the first training, for `llama3`, `yarn` and `longrope`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_max_position_embeddings: Option<i64>,
    /// For `yarn` and `longrope`.
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
    /// For `longrope`: what each angle is divided with in sequences as long as in the first training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_factor: Option<Vec<f64>>,
    /// For `longrope`: the same in longer sequences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_factor: Option<Vec<f64>>,
    /// The part of each head that is turned; of kind `default`, Llama and Mixtral turn all.
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
    /// Keys beside those, where some configurations say what belongs into the parameters.
    pub(crate) beside: &'c OtherKeys,
    pub(crate) head_width: i64,
    pub(crate) max_positions: i64,
}

/// The rotary embedding that a configuration asks for.
pub(crate) fn rotary_settings(keys: RopeKeys<'_>) -> Result<RotarySettings> {
    let none = RopeParameters::default();
    let given = keys.scaling.or(keys.parameters).unwrap_or(&none);
    let base = given
        .rope_theta
        .or(keys.theta)
        .unwrap_or(keys.default_theta);
    if !(base > 1.0 && base.is_finite()) {
        return Err(keys.checks.refused("rope_theta", "a number above 1", &base));
    }
    let width = keys.turned_width(given)?;
    Ok(RotarySettings {
        width,
        base,
        max_positions: keys.max_positions,
        scaling: Reader { keys, given, width }.scaling()?,
    })
}

/// The longest sequence; none where rotary positions stretch with it.
pub(crate) fn longest_sequence(rotary: &RotarySettings) -> Option<i64> {
    match rotary.scaling {
        RotaryScaling::Dynamic { .. } => None,
        _ => Some(rotary.max_positions),
    }
}

impl RopeKeys<'_> {
    /// The part of each head that is turned, from above 0 to 1.
    fn part(&self, given: &RopeParameters) -> Result<f64> {
        let beside = self.beside.get("partial_rotary_factor");
        let part = given
            .partial_rotary_factor
            .or(beside.and_then(serde_json::Value::as_f64))
            .unwrap_or(1.0);
        if part > 0.0 && part <= 1.0 {
            return Ok(part);
        }
        let expected = "a part of each head, above 0 and at most 1";
        Err(self
            .checks
            .refused("partial_rotary_factor", expected, &part))
    }

    /// How many dimensions of each head are turned.
    fn turned_width(&self, given: &RopeParameters) -> Result<i64> {
        let part = self.part(given)?;
        let (key, width) = match given.kind() {
            "default" if part < 1.0 => {
                warn_of_ignored_part(part);
                ("head_dim", self.head_width)
            }
            // Of this kind, angles that do not turn are part of the head's.
            "default" | "proportional" => ("head_dim", self.head_width),
            _ if part < 1.0 => (
                "partial_rotary_factor",
                (self.head_width as f64 * part) as i64,
            ),
            _ => ("head_dim", self.head_width),
        };
        if width < 2 || width % 2 != 0 {
            let expected = "an even number of at least 2, for rotary positions";
            let found = format!("{width} of {}", self.head_width);
            return Err(self.checks.refused(key, expected, &found));
        }
        Ok(width)
    }

    /// The longest sequence of the first training; what stands beside the parameters wins.
    fn original(&self, given: &RopeParameters) -> Result<i64> {
        let key = "original_max_position_embeddings";
        let beside = self.beside.get(key).and_then(serde_json::Value::as_i64);
        let original = beside
            .or(given.original_max_position_embeddings)
            .unwrap_or(self.max_positions);
        if original < 1 {
            return Err(self.checks.refused(key, "at least 1", &original));
        }
        Ok(original)
    }
}

/// The original turns whole heads too, and does not say so.
fn warn_of_ignored_part(part: f64) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        tracing::warn!(
            partial_rotary_factor = part,
            "Llama and Mixtral with rotary positions of kind `default` turn whole heads, whatever \
             `partial_rotary_factor` says"
        );
    });
}

impl RopeParameters {
    fn kind(&self) -> &str {
        let kind = self.rope_type.as_deref().or(self.old_type.as_deref());
        kind.unwrap_or("default")
    }
}

/// Turns what a configuration says into a scaling for `width` dimensions.
struct Reader<'c> {
    keys: RopeKeys<'c>,
    given: &'c RopeParameters,
    width: i64,
}

impl Reader<'_> {
    fn scaling(&self) -> Result<RotaryScaling> {
        let original = self.keys.original(self.given)?;
        Ok(match self.given.kind() {
            "default" => RotaryScaling::None,
            "linear" => RotaryScaling::Linear {
                factor: self.factor()?,
            },
            "dynamic" => self.dynamic()?,
            "llama3" => RotaryScaling::Llama3 {
                factor: self.factor()?,
                low_freq_factor: self.required("low_freq_factor", self.given.low_freq_factor)?,
                high_freq_factor: self.required("high_freq_factor", self.given.high_freq_factor)?,
                original_max_positions: original,
            },
            "yarn" => {
                let factor = self.factor_or_ratio(original)?;
                RotaryScaling::Yarn(self.given.yarn(factor, original))
            }
            "longrope" => RotaryScaling::LongRope(self.longrope(original)?),
            "proportional" => RotaryScaling::Proportional {
                pairs: (self.keys.part(self.given)? * self.width as f64 / 2.0).floor() as i64,
                factor: match self.given.factor {
                    Some(_) => self.factor()?,
                    None => 1.0,
                },
            },
            other => {
                let expected = "`default`, `linear`, `dynamic`, `yarn`, `longrope`, `llama3` or \
                                `proportional`";
                let found = format!("`{other}`");
                return Err(self.keys.checks.refused("rope_type", expected, &found));
            }
        })
    }

    fn required(&self, key: &'static str, value: Option<f64>) -> Result<f64> {
        let (checks, expected) = (self.keys.checks, "a number above 0");
        match value {
            Some(value) if value > 0.0 => Ok(value),
            Some(value) => Err(checks.refused(key, expected, &value)),
            None => Err(checks.refused(key, expected, &"nothing")),
        }
    }

    fn factor(&self) -> Result<f64> {
        match self.given.factor {
            Some(factor) if factor < 1.0 => {
                Err(self.keys.checks.refused("factor", "at least 1", &factor))
            }
            factor => self.required("factor", factor),
        }
    }

    /// The factor; where it is absent, how far the longest sequence is beyond the original.
    fn factor_or_ratio(&self, original: i64) -> Result<f64> {
        match self.given.factor {
            Some(_) => self.factor(),
            None => Ok(self.keys.max_positions as f64 / original as f64),
        }
    }

    fn dynamic(&self) -> Result<RotaryScaling> {
        if self.width < 4 {
            let expected = "at least 4, for `dynamic` positions";
            return Err(self.keys.checks.refused("head_dim", expected, &self.width));
        }
        Ok(RotaryScaling::Dynamic {
            factor: self.factor()?,
        })
    }

    fn longrope(&self, original: i64) -> Result<LongRopeScaling> {
        let factor = self.factor_or_ratio(original)?;
        let attention_factor = self.given.attention_factor;
        if original < 2 && factor > 1.0 && attention_factor.is_none() {
            let expected = "at least 2, or an `attention_factor`";
            let key = "original_max_position_embeddings";
            return Err(self.keys.checks.refused(key, expected, &original));
        }
        Ok(LongRopeScaling {
            short_factor: self.factors("short_factor", self.given.short_factor.as_deref())?,
            long_factor: self.factors("long_factor", self.given.long_factor.as_deref())?,
            factor,
            attention_factor,
            original_max_positions: original,
        })
    }

    /// One number for each angle.
    fn factors(&self, key: &'static str, factors: Option<&[f64]>) -> Result<Vec<f64>> {
        let pairs = self.width / 2;
        let expected = format!("{pairs} numbers above 0, one for each angle");
        let refused = |found: &str| Err(self.keys.checks.refused(key, expected.as_str(), &found));
        match factors {
            None => refused("nothing"),
            Some(factors) if factors.len() as i64 != pairs => {
                refused(&format!("{} numbers", factors.len()))
            }
            Some(factors) => match factors.iter().find(|&&factor| !is_usable(factor)) {
                Some(factor) => refused(&factor.to_string()),
                None => Ok(factors.to_vec()),
            },
        }
    }
}

fn is_usable(factor: f64) -> bool {
    factor > 0.0 && factor.is_finite()
}

impl RopeParameters {
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
        settings_beside(json, theta, "{}")
    }

    fn settings_beside(json: &str, theta: Option<f64>, beside: &str) -> Result<RotarySettings> {
        let scaling: RopeParameters = serde_json::from_str(json).unwrap();
        let beside: OtherKeys = serde_json::from_str(beside).unwrap();
        rotary_settings(RopeKeys {
            checks: ConfigChecks::of("Llama"),
            theta,
            default_theta: 10000.0,
            scaling: Some(&scaling),
            parameters: None,
            beside: &beside,
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
    fn what_stands_beside_the_parameters_counts() {
        let json = r#"{"rope_type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0],
            "original_max_position_embeddings": 32}"#;
        let beside = r#"{"partial_rotary_factor": 0.5, "original_max_position_embeddings": 16}"#;
        let found = settings_beside(json, None, beside).unwrap();
        assert_eq!(found.width, 4);
        let expected = LongRopeScaling {
            short_factor: vec![1.0, 1.5],
            long_factor: vec![2.0, 3.0],
            factor: 4.0,
            attention_factor: None,
            original_max_positions: 16,
        };
        assert_eq!(found.scaling, RotaryScaling::LongRope(expected));
    }

    #[test]
    fn a_part_of_each_head_is_turned() {
        let linear = r#"{"rope_type": "linear", "factor": 2, "partial_rotary_factor": 0.5}"#;
        assert_eq!(settings(linear, None).unwrap().width, 4);
        // As in the original, which looks at the part for other kinds only.
        let usual = settings(r#"{"partial_rotary_factor": 0.5}"#, None).unwrap();
        assert_eq!((usual.width, usual.scaling), (8, RotaryScaling::None));
        let json = r#"{"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 2}"#;
        let some = settings(json, None).unwrap();
        let expected = RotaryScaling::Proportional {
            pairs: 2,
            factor: 2.0,
        };
        assert_eq!((some.width, some.scaling), (8, expected));
    }

    #[test]
    fn what_cannot_be_is_told() {
        for (json, key) in [
            (r#"{"rope_type": "su"}"#, "rope_type"),
            (r#"{"rope_type": "longrope"}"#, "short_factor"),
            (
                r#"{"rope_type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [1, 1]}"#,
                "long_factor",
            ),
            (
                r#"{"rope_type": "longrope", "short_factor": [1, 1, 0, 1]}"#,
                "short_factor",
            ),
            (r#"{"rope_type": "linear"}"#, "factor"),
            (r#"{"rope_type": "dynamic", "factor": 0.5}"#, "factor"),
            (r#"{"rope_type": "llama3", "factor": 8}"#, "low_freq_factor"),
            (r#"{"partial_rotary_factor": 1.5}"#, "partial_rotary_factor"),
            (
                r#"{"rope_type": "linear", "factor": 2, "partial_rotary_factor": 0.4}"#,
                "partial_rotary_factor",
            ),
            (r#"{"rope_theta": 0}"#, "rope_theta"),
        ] {
            let message = settings(json, None).unwrap_err().to_string();
            assert!(message.contains(&format!("`{key}`")), "{json}: {message}");
        }
    }
}
