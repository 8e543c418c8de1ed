//! Values that are said twice: by a setting and by DeepSpeed's own config.

use std::fmt;

use super::{
    Auto, DeepSpeedSettings,
    document::{Document, flag, number},
};
use crate::{
    MixedPrecision,
    config::{Value, inline_json},
    settings::{Origin, Sourced},
};

/// A value that is said twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ambiguity {
    /// The setting.
    pub name: &'static str,
    /// Its value.
    pub said: String,
    /// Where that stands.
    pub origin: Origin,
    /// The key of DeepSpeed's config.
    pub key: &'static str,
    /// Its value there.
    pub found: String,
    /// Where that stands.
    pub found_at: Origin,
}

impl fmt::Display for Ambiguity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            said,
            origin,
            key,
            found,
            found_at,
        } = self;
        write!(
            f,
            "`{name}` is {said} ({origin}), `{key}` is {found} ({found_at})"
        )
    }
}

/// A setting and the key of DeepSpeed's config that says the same, in the order of messages.
pub(super) struct Pair {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
}

pub(super) static PAIRS: [Pair; 8] = [
    Pair {
        name: "gradient_accumulation_steps",
        key: "gradient_accumulation_steps",
    },
    Pair {
        name: "gradient_clipping",
        key: "gradient_clipping",
    },
    Pair {
        name: "zero_stage",
        key: "zero_optimization.stage",
    },
    Pair {
        name: "offload_optimizer_device",
        key: "zero_optimization.offload_optimizer.device",
    },
    Pair {
        name: "offload_param_device",
        key: "zero_optimization.offload_param.device",
    },
    Pair {
        name: "offload_param_nvme_path",
        key: "zero_optimization.offload_param.nvme_path",
    },
    Pair {
        name: "offload_optimizer_nvme_path",
        key: "zero_optimization.offload_optimizer.nvme_path",
    },
    Pair {
        name: "zero3_save_16bit_model",
        key: "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    },
];

impl DeepSpeedSettings {
    /// The value of a setting as plain data, with its default; [`None`] for a path that is not given.
    pub(super) fn said(&self, name: &str) -> Option<Sourced<Value>> {
        let path = |path: &Option<Sourced<String>>| {
            let path = path.as_ref()?;
            Some(Sourced {
                value: Value::Text(path.value.clone()),
                origin: path.origin.clone(),
            })
        };
        let sourced = |value: Value, origin: &Origin| {
            let origin = origin.clone();
            Some(Sourced { value, origin })
        };
        match name {
            "gradient_accumulation_steps" => {
                let said = &self.gradient_accumulation_steps;
                let value = match said.value {
                    Auto::Auto => "auto".into(),
                    Auto::Exactly(steps) => Value::Int(i64::from(steps.get())),
                };
                sourced(value, &said.origin)
            }
            "gradient_clipping" => {
                let said = &self.gradient_clipping;
                let value = match said.value {
                    Auto::Auto => "auto".into(),
                    Auto::Exactly(norm) => Value::Float(norm),
                };
                sourced(value, &said.origin)
            }
            "zero_stage" => {
                let stage = i64::try_from(self.zero_stage.value).unwrap_or(i64::MAX);
                sourced(Value::Int(stage), &self.zero_stage.origin)
            }
            "offload_optimizer_device" => {
                let said = &self.offload_optimizer_device;
                sourced(said.value.name().into(), &said.origin)
            }
            "offload_param_device" => {
                let said = &self.offload_param_device;
                sourced(said.value.name().into(), &said.origin)
            }
            "offload_optimizer_nvme_path" => path(&self.offload_optimizer_nvme_path),
            "offload_param_nvme_path" => path(&self.offload_param_nvme_path),
            "zero3_save_16bit_model" => {
                let said = &self.zero3_save_16bit_model;
                sourced(Value::Bool(said.value), &said.origin)
            }
            _ => None,
        }
    }

    fn is_of_launch_file(&self, name: &str) -> bool {
        self.of_launch_file.iter().any(|known| known == name)
    }

    /// Every value that is said twice.
    ///
    /// What the launcher's config file says may not stand in DeepSpeed's config too, unless it is
    /// `auto` there; nor may DeepSpeed's config leave it out, because it would be lost. What a flag,
    /// variable or the program says may stand there if it is the same.
    pub(super) fn said_twice(
        &self,
        document: &Document,
        precision: &Sourced<MixedPrecision>,
    ) -> Vec<Ambiguity> {
        let pairs = PAIRS.iter().filter_map(|pair| {
            let said = self.said(pair.name)?;
            let is_said = said.origin.is_given() && said.value != Value::from("auto");
            let found = document.get(pair.key);
            let is_twice = match found {
                _ if document.is_auto(pair.key) => false,
                _ if self.is_of_launch_file(pair.name) => true,
                Some(found) => !is_same(&said.value, found),
                None => false,
            };
            (is_said && is_twice).then(|| Ambiguity {
                name: pair.name,
                said: inline_json(&said.value),
                origin: said.origin,
                key: pair.key,
                found: found.map_or_else(|| "missing".to_owned(), inline_json),
                found_at: document.origin(pair.key),
            })
        });
        pairs
            .chain(self.precision_said_twice(document, precision))
            .collect()
    }

    /// The precision may be said twice if it is the same, as in the files of the documentation.
    fn precision_said_twice(
        &self,
        document: &Document,
        precision: &Sourced<MixedPrecision>,
    ) -> Option<Ambiguity> {
        let is_no = precision.value == MixedPrecision::No;
        if is_no && !self.is_of_launch_file("mixed_precision") {
            return None;
        }
        let key = contradicting_key(document, precision.value)?;
        Some(Ambiguity {
            name: "mixed_precision",
            said: precision.value.to_string(),
            origin: precision.origin.clone(),
            key,
            found: document.get(key).map(inline_json).unwrap_or_default(),
            found_at: document.origin(key),
        })
    }
}

/// The key that says something else about the precision.
fn contradicting_key(document: &Document, precision: MixedPrecision) -> Option<&'static str> {
    let (fp16, bf16) = ("fp16.enabled", "bf16.enabled");
    let says = |key: &str| document.get(key).and_then(flag);
    let (wanted, other) = match precision {
        MixedPrecision::No => (None, [fp16, bf16].into_iter().find(|key| says(key) == Some(true))),
        MixedPrecision::Fp16 => (Some(fp16), Some(bf16)),
        MixedPrecision::Bf16 | MixedPrecision::Fp8 => (Some(bf16), Some(fp16)),
    };
    let off = wanted.filter(|key| says(key) == Some(false));
    other.filter(|key| says(key) == Some(true)).or(off)
}

/// Whether two values say the same: `8` and `"8"`, `1` and `1.0`.
pub(super) fn is_same(left: &Value, right: &Value) -> bool {
    match (number(left), number(right), flag(left), flag(right)) {
        (Some(left), Some(right), ..) => left == right,
        (_, _, Some(left), Some(right)) => left == right,
        _ => inline_json(left) == inline_json(right),
    }
}
