//! Turns the FSDP section of a config file into one for version 2.

use std::fmt;

use indexmap::IndexMap;

use super::Value;

/// The section that is converted.
const SECTION: &str = "fsdp_config";
const VERSION: &str = "fsdp_version";
const RESHARD: &str = "fsdp_reshard_after_forward";

/// Strategies of version 1 in the order of their numbers, and whether parameters are given back
/// after the forward pass.
const STRATEGIES: [(&str, bool); 5] = [
    ("FULL_SHARD", true),
    ("SHARD_GRAD_OP", false),
    ("NO_SHARD", false),
    ("HYBRID_SHARD", true),
    ("HYBRID_SHARD_ZERO2", false),
];

/// A converted config file.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Conversion {
    /// The whole content for the new file.
    pub value: Value,
    /// What the user should know, in the order of the file.
    pub warnings: Vec<ConversionWarning>,
}

/// Something that a conversion to version 2 leaves out or leaves alone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConversionWarning {
    /// There is no `fsdp_config`, so nothing was changed.
    NoSection,
    /// `fsdp_config` is not a map, so nothing was changed.
    SectionNotAMap,
    /// The section is one of version 2 already, so nothing was changed.
    AlreadyVersion2,
    /// Version 2 has no such setting; the key was left out.
    Removed {
        /// The key.
        key: String,
    },
    /// Version 2 does not have the setting yet; the key was left out.
    NotImplemented {
        /// The key.
        key: String,
    },
    /// Two keys of the old section say the same thing; the later one counts.
    Overridden {
        /// The key that no longer counts.
        key: String,
        /// The key that counts.
        by: String,
    },
}

impl fmt::Display for ConversionWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSection => write!(f, "there is no `{SECTION}`: nothing was converted"),
            Self::SectionNotAMap => {
                write!(f, "`{SECTION}` holds no keys: nothing was converted")
            }
            Self::AlreadyVersion2 => write!(
                f,
                "`{VERSION}` is 2 already: nothing was converted (if the keys are still those of \
                 version 1, set it to 1 and convert again)"
            ),
            Self::Removed { key } => write!(f, "`{key}` was left out: FSDP 2 has no such setting"),
            Self::NotImplemented { key } => {
                write!(f, "`{key}` was left out: FSDP 2 does not have it yet")
            }
            Self::Overridden { key, by } => {
                write!(f, "`{key}` was left out: `{by}` further down says the same")
            }
        }
    }
}

/// Converts a config file for FSDP version 1 to version 2. Only the section `fsdp_config` changes.
///
/// The strategy becomes `fsdp_reshard_after_forward`; settings that version 2 does not have are
/// left out with a warning; all other keys are kept as they are. A file without the section, or of
/// version 2 already, is given back unchanged, and a warning says why.
///
/// # Source
/// `accelerate to-fsdp2`. Differs: a strategy given by its number is understood too, and so are keys
/// without the prefix `fsdp_`, which a config file may leave out.
pub fn to_fsdp2(config: &Value) -> Conversion {
    let unchanged = |warning| Conversion {
        value: config.clone(),
        warnings: vec![warning],
    };
    let Value::Map(entries) = config else {
        return unchanged(ConversionWarning::NoSection);
    };
    let old = match entries.get(SECTION) {
        None => return unchanged(ConversionWarning::NoSection),
        Some(section) if section.is_absent() => return unchanged(ConversionWarning::NoSection),
        Some(Value::Map(old)) => old,
        Some(_) => return unchanged(ConversionWarning::SectionNotAMap),
    };
    if old
        .iter()
        .any(|(key, value)| prefixed(key) == VERSION && is_two(value))
    {
        return unchanged(ConversionWarning::AlreadyVersion2);
    }
    let (section, warnings) = convert_section(old);
    let mut entries = entries.clone();
    entries.insert(SECTION.to_owned(), Value::Map(section));
    Conversion {
        value: Value::Map(entries),
        warnings,
    }
}

fn convert_section(
    old: &IndexMap<String, Value>,
) -> (IndexMap<String, Value>, Vec<ConversionWarning>) {
    let mut section = IndexMap::new();
    let mut warnings = Vec::new();
    let mut reshard_key: Option<&String> = None;
    for (key, value) in old {
        match prefixed(key).as_str() {
            "fsdp_backward_prefetch" | "fsdp_sync_module_states" | "fsdp_use_orig_params" => {
                warnings.push(ConversionWarning::Removed { key: key.clone() });
            }
            "fsdp_forward_prefetch" => {
                warnings.push(ConversionWarning::NotImplemented { key: key.clone() });
            }
            name @ ("fsdp_sharding_strategy" | RESHARD) => {
                if let Some(earlier) = reshard_key.replace(key) {
                    warnings.push(ConversionWarning::Overridden {
                        key: earlier.clone(),
                        by: key.clone(),
                    });
                }
                section.insert(RESHARD.to_owned(), reshard(value, name == RESHARD));
            }
            VERSION => {}
            _ => {
                section.insert(key.clone(), value.clone());
            }
        }
    }
    section.insert(VERSION.to_owned(), Value::Int(2));
    (section, warnings)
}

/// Whether to give parameters back after the forward pass; a value that names no strategy is kept.
/// A number under the new name is not the number of a strategy.
fn reshard(value: &Value, new_name: bool) -> Value {
    let found = match value {
        Value::Text(name) => STRATEGIES
            .iter()
            .position(|(known, _)| known == name)
            .or_else(|| {
                let number = name.parse::<usize>().ok()?;
                (!new_name).then(|| number.checked_sub(1))?
            }),
        Value::Int(number) if !new_name => usize::try_from(*number)
            .ok()
            .and_then(|number| number.checked_sub(1)),
        _ => None,
    };
    match found.and_then(|index| STRATEGIES.get(index)) {
        Some((_, reshard)) => Value::Bool(*reshard),
        None => value.clone(),
    }
}

/// The full name of a key of the section.
fn prefixed(key: &str) -> String {
    match key.starts_with("fsdp") {
        true => key.to_owned(),
        false => format!("fsdp_{key}"),
    }
}

fn is_two(value: &Value) -> bool {
    match value {
        Value::Int(number) => *number == 2,
        Value::Float(number) => *number == 2.0,
        Value::Text(text) => text.trim() == "2",
        _ => false,
    }
}

#[cfg(test)]
mod tests;
