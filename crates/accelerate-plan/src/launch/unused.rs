//! Settings that somebody gave, but that nothing in this job reads.

use std::fmt;

use super::{Strategy, environment::uses_mesh};
use crate::{
    MixedPrecision,
    settings::{GRADIENT_ACCUMULATION_STEPS, KeyEntry, MIXED_PRECISION, Origin, Section, Settings},
};

/// A setting that was given and has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unused {
    /// Its name.
    pub name: &'static str,
    /// Where it was given.
    pub origin: Origin,
    /// Why nothing reads it.
    pub why: Unread,
}

/// Why nothing reads a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// In no job, for this reason.
    Never(&'static str),
    /// Not in this one: the flag that asks for the group of the setting was not given.
    Without(&'static str),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never(why) => f.write_str(why),
            Self::Without(switch) => write!(f, "without `{switch}`"),
        }
    }
}

/// Every setting that a flag or a file gives and that nothing reads.
///
/// A file is not blamed for what the questionnaire writes into every file, and a variable reaches
/// the processes in any case.
pub fn unused(settings: &Settings, strategy: Strategy) -> Vec<Unused> {
    settings
        .iter()
        .filter_map(|(entry, _, origin)| {
            Some(Unused {
                name: entry.name,
                origin: origin.clone(),
                why: why(entry, origin, settings, strategy)?,
            })
        })
        .collect()
}

fn why(
    entry: &KeyEntry,
    origin: &Origin,
    settings: &Settings,
    strategy: Strategy,
) -> Option<Unread> {
    let is_flag = matches!(origin, Origin::Flag(_));
    if let Some(why) = entry.no_effect {
        return is_flag.then_some(Unread::Never(why));
    }
    let is_chosen = is_flag || matches!(origin, Origin::File { .. });
    let switch = missing_switch(entry, settings, strategy);
    switch.filter(|_| is_chosen).map(Unread::Without)
}

/// The flag without which nothing reads a setting of this group, if it is missing.
fn missing_switch(
    entry: &KeyEntry,
    settings: &Settings,
    strategy: Strategy,
) -> Option<&'static str> {
    if entry.name == GRADIENT_ACCUMULATION_STEPS.name() {
        return None;
    }
    let is_fp8 = settings.get(&MIXED_PRECISION) == Some(MixedPrecision::Fp8);
    let (switch, is_on) = match entry.section {
        Section::Fsdp => ("--use_fsdp", strategy == Strategy::Fsdp),
        Section::DeepSpeed => ("--use_deepspeed", strategy == Strategy::DeepSpeed),
        Section::MegatronLm => ("--use_megatron_lm", strategy == Strategy::MegatronLm),
        Section::Parallelism => ("--use_parallelism_config", uses_mesh(settings)),
        Section::Fp8 => ("--mixed_precision fp8", is_fp8),
        _ => return None,
    };
    (!is_on).then_some(switch)
}
