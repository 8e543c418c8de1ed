//! What the settings tell every process of a job.

use super::Strategy;
use crate::{
    MixedPrecision,
    env::{
        CONFIG_DS_FIELDS, CPU_AFFINITY, DEBUG_MODE, EnvOverlay, FP8_OVERRIDE_DGRAD,
        FP8_OVERRIDE_FPROP, FP8_OVERRIDE_WGRAD, FSDP_SHARDING_STRATEGY,
        GRADIENT_ACCUMULATION_STEPS, MIXED_PRECISION, USE_CPU, USE_DEEPSPEED, USE_FSDP,
        USE_MEGATRON_LM, USE_PARALLELISM_CONFIG,
    },
    settings::{self, FsdpVersion, GPU_IDS, KeyEntry, Origin, Section, Settings},
};

/// What every process of a job is told, besides its place.
///
/// `devices_variable` is the variable by which the machine's accelerators are chosen.
pub fn environment(
    settings: &Settings,
    strategy: Strategy,
    cpu: bool,
    devices_variable: Option<&'static str>,
) -> EnvOverlay {
    let mut overlay = settings.export(|entry| entry.section == Section::Dynamo);
    let precision = settings.get(&settings::MIXED_PRECISION).unwrap_or_default();
    overlay.set(&MIXED_PRECISION, &precision);
    if cpu {
        overlay.set(&USE_CPU, &true);
    }
    if settings.is_on(&settings::DEBUG) {
        overlay.set(&DEBUG_MODE, &true);
    }
    if settings.is_on(&settings::ENABLE_CPU_AFFINITY) {
        overlay.set(&CPU_AFFINITY, &true);
    }
    if let (Some(variable), Some(ids)) = (devices_variable, settings.given(&GPU_IDS))
        && ids.value != "all"
    {
        overlay.set_text(variable, ids.value);
    }
    if precision == MixedPrecision::Fp8 {
        overlay.extend(&fp8(settings));
    }
    if let Some(steps) = settings.given(&settings::GRADIENT_ACCUMULATION_STEPS) {
        overlay.set(&GRADIENT_ACCUMULATION_STEPS, &steps.value);
    }
    match strategy {
        Strategy::Fsdp => overlay.extend(&fsdp(settings)),
        Strategy::DeepSpeed => overlay.extend(&deepspeed(settings)),
        Strategy::MegatronLm => {
            overlay.set(&USE_MEGATRON_LM, &true);
            overlay.extend(&settings.export(|entry| entry.section == Section::MegatronLm));
        }
        Strategy::Plain | Strategy::Tpu | Strategy::SageMaker => {}
    }
    if uses_mesh(settings) {
        overlay.set(&USE_PARALLELISM_CONFIG, &true);
        overlay.extend(&settings.export(|entry| is_told_of_mesh(settings, entry)));
    }
    overlay
}

/// Whether the mesh is laid out by settings: a switch says so, or a file lays it out.
pub fn uses_mesh(settings: &Settings) -> bool {
    settings.is_on(&settings::USE_PARALLELISM_CONFIG)
        || settings.iter().any(|(entry, _, origin)| {
            entry.section == Section::Parallelism && matches!(origin, Origin::File { .. })
        })
}

fn is_told_of_mesh(settings: &Settings, entry: &KeyEntry) -> bool {
    let above_one = |key| {
        settings
            .get(key)
            .is_some_and(|size: std::num::NonZeroUsize| size.get() > 1)
    };
    match entry.name {
        "parallelism_config_cp_comm_strategy" => above_one(&settings::PARALLELISM_CP_SIZE),
        "parallelism_config_sp_seq_length"
        | "parallelism_config_sp_seq_length_is_variable"
        | "parallelism_config_sp_attn_implementation" => above_one(&settings::PARALLELISM_SP_SIZE),
        _ => entry.section == Section::Parallelism,
    }
}

fn fp8(settings: &Settings) -> EnvOverlay {
    let mut overlay = settings.export(|entry| entry.section == Section::Fp8);
    let higher = settings
        .get(&settings::FP8_OVERRIDE_LINEAR_PRECISION)
        .unwrap_or_default();
    overlay.set(&FP8_OVERRIDE_FPROP, &higher.fprop);
    overlay.set(&FP8_OVERRIDE_DGRAD, &higher.dgrad);
    overlay.set(&FP8_OVERRIDE_WGRAD, &higher.wgrad);
    overlay
}

/// In version 1, a strategy under the newer name counts where none was given under the older one:
/// the original tells its processes the older name's default and so loses the choice.
fn fsdp(settings: &Settings) -> EnvOverlay {
    let mut overlay = settings.export(|entry| entry.section == Section::Fsdp);
    overlay.set(&USE_FSDP, &true);
    let newer = settings.get(&settings::FSDP_RESHARD_AFTER_FORWARD);
    let newer = newer.and_then(settings::ReshardAfterForward::strategy);
    let is_old = settings.get(&settings::FSDP_VERSION) == Some(FsdpVersion::One);
    if let (Some(strategy), None, true) = (
        newer,
        settings.given(&settings::FSDP_SHARDING_STRATEGY),
        is_old,
    ) {
        overlay.set(&FSDP_SHARDING_STRATEGY, &strategy);
    }
    overlay
}

fn deepspeed(settings: &Settings) -> EnvOverlay {
    let mut overlay = settings.export(|entry| entry.section == Section::DeepSpeed);
    overlay.set(&USE_DEEPSPEED, &true);
    overlay.set(
        &CONFIG_DS_FIELDS,
        &fields_of_file(settings).to_ascii_lowercase(),
    );
    overlay
}

/// Keys for DeepSpeed that a config file gives, in the order of the file, and the precision if it
/// comes from there: where DeepSpeed's own file says something else about them, that is an error.
fn fields_of_file(settings: &Settings) -> String {
    let line = |origin: &Origin| match origin {
        Origin::File { line, .. } => Some(*line),
        _ => None,
    };
    let mut keys: Vec<(usize, &str)> = settings
        .iter()
        .filter(|(entry, ..)| entry.section == Section::DeepSpeed)
        .filter_map(|(entry, _, origin)| Some((line(origin)?, entry.name)))
        .collect();
    keys.sort_unstable();
    let precision = line(settings.origin(&settings::MIXED_PRECISION)).map(|_| "mixed_precision");
    let names: Vec<_> = keys
        .into_iter()
        .map(|(_, name)| name)
        .chain(precision)
        .collect();
    names.join(",")
}
