//! Settings that exclude each other, each seen before a process starts.

use super::{Strategy, environment::uses_mesh};
use crate::{
    Contradiction, Result,
    config::inline_json,
    settings::{
        CPU, DEEPSPEED_EXCLUSION_FILTER, DEEPSPEED_INCLUSION_FILTER, DISTRIBUTED_TYPE,
        DistributedType, FSDP_ACTIVATION_CHECKPOINTING, FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD,
        FSDP_CPU_RAM_EFFICIENT_LOADING, FSDP_SYNC_MODULE_STATES, FSDP_VERSION, FsdpVersion,
        GPU_IDS, MULTI_GPU, NUM_MACHINES, NUM_PROCESSES, Origin, Section, Settings, Sourced,
        USE_FSDP, USE_PARALLELISM_CONFIG,
    },
};

/// Refuses settings that exclude each other.
///
/// # Errors
/// [`crate::Error::Contradiction`] with both values and where they came from.
pub fn check(settings: &Settings, strategy: Strategy) -> Result<()> {
    several_processes_for_several_devices(settings)?;
    enough_devices(settings)?;
    mesh_needs_fsdp(settings, strategy)?;
    if strategy == Strategy::Fsdp {
        weights_reach_every_rank(settings)?;
        offload_has_checkpoints(settings)?;
    }
    one_filter(settings)
}

fn several_processes_for_several_devices(settings: &Settings) -> Result<()> {
    let by_flag = settings.given(&MULTI_GPU).filter(|given| given.value);
    match (by_flag, settings.given(&NUM_PROCESSES)) {
        (Some(multi), Some(count))
            if count.value.get() < 2 && matches!(count.origin, Origin::Flag(_)) =>
        {
            Err(Contradiction::error(
                NUM_PROCESSES.name(),
                &count,
                "at least 2 with `multi_gpu`",
                &multi,
            ))
        }
        _ => Ok(()),
    }
}

fn enough_devices(settings: &Settings) -> Result<()> {
    let Some(ids) = settings.given(&GPU_IDS).filter(|ids| ids.value != "all") else {
        return Ok(());
    };
    let on_one_machine = settings
        .get(&NUM_MACHINES)
        .is_none_or(|machines| machines.get() == 1);
    let several = settings.given(&MULTI_GPU).filter(|given| given.value);
    let several = several.map(|given| Sourced {
        value: "on".to_owned(),
        origin: given.origin,
    });
    let by_kind = settings
        .sourced(&DISTRIBUTED_TYPE)
        .filter(|kind| kind.value == DistributedType::MultiGpu && !settings.is_on(&CPU));
    let by_kind = by_kind.map(|kind| Sourced {
        value: kind.value.to_string(),
        origin: kind.origin,
    });
    match several.or(by_kind) {
        Some(several) if on_one_machine && !ids.value.contains(',') => Err(Contradiction::error(
            GPU_IDS.name(),
            &ids,
            "at least two devices, or `all`, for a job on several",
            &several,
        )),
        _ => Ok(()),
    }
}

/// A file may lay out a mesh without sharding, but the switch asks for it.
fn mesh_needs_fsdp(settings: &Settings, strategy: Strategy) -> Result<()> {
    let Some((name, mesh)) = mesh(settings) else {
        return Ok(());
    };
    let is_free = strategy == Strategy::Plain && matches!(mesh.origin, Origin::File { .. });
    if !matches!(strategy, Strategy::Fsdp | Strategy::DeepSpeed) && !is_free {
        let other = Sourced {
            value: "off",
            origin: settings.origin(&USE_FSDP).clone(),
        };
        return Err(Contradiction::error(
            name,
            &mesh,
            "together with `use_fsdp`",
            &other,
        ));
    }
    match settings.sourced(&FSDP_VERSION) {
        Some(version) if strategy == Strategy::Fsdp && version.value == FsdpVersion::One => Err(
            Contradiction::error(name, &mesh, "together with version 2 of FSDP", &version),
        ),
        _ => Ok(()),
    }
}

/// What lays out the mesh: the switch, or the first of its settings in a file.
fn mesh(settings: &Settings) -> Option<(&'static str, Sourced<String>)> {
    if !uses_mesh(settings) {
        return None;
    }
    let switch = settings
        .given(&USE_PARALLELISM_CONFIG)
        .filter(|given| given.value);
    if let Some(switch) = switch {
        let on = Sourced {
            value: "on".to_owned(),
            origin: switch.origin,
        };
        return Some((USE_PARALLELISM_CONFIG.name(), on));
    }
    let mut laid_out = settings.iter().filter(|(entry, _, origin)| {
        entry.section == Section::Parallelism && matches!(origin, Origin::File { .. })
    });
    let (entry, value, origin) = laid_out.next()?;
    let given = Sourced {
        value: inline_json(&value?),
        origin: origin.clone(),
    };
    Some((entry.name, given))
}

fn weights_reach_every_rank(settings: &Settings) -> Result<()> {
    let is_old = settings.get(&FSDP_VERSION) == Some(FsdpVersion::One);
    match (
        settings.sourced(&FSDP_CPU_RAM_EFFICIENT_LOADING),
        settings.sourced(&FSDP_SYNC_MODULE_STATES),
    ) {
        (Some(efficient), Some(sync)) if is_old && efficient.value && !sync.value => {
            Err(Contradiction::error(
                FSDP_SYNC_MODULE_STATES.name(),
                &sync,
                "`true`, because only one process loads weights with `fsdp_cpu_ram_efficient_loading`",
                &efficient,
            ))
        }
        _ => Ok(()),
    }
}

/// What checkpointing keeps can wait in CPU memory only where there is checkpointing, in version 2.
fn offload_has_checkpoints(settings: &Settings) -> Result<()> {
    let offload = settings.given(&FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD);
    let Some(offload) = offload.filter(|given| given.value) else {
        return Ok(());
    };
    let key = &FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD;
    if let Some(off) = settings
        .sourced(&FSDP_ACTIVATION_CHECKPOINTING)
        .filter(|on| !on.value)
    {
        let expected = "`false` without `fsdp_activation_checkpointing`";
        return Err(Contradiction::error(key.name(), &offload, expected, &off));
    }
    match settings.sourced(&FSDP_VERSION) {
        Some(version) if version.value == FsdpVersion::One => Err(Contradiction::error(
            key.name(),
            &offload,
            "`false` in version 1 of FSDP",
            &version,
        )),
        _ => Ok(()),
    }
}

fn one_filter(settings: &Settings) -> Result<()> {
    match (
        settings.given(&DEEPSPEED_EXCLUSION_FILTER),
        settings.given(&DEEPSPEED_INCLUSION_FILTER),
    ) {
        (Some(exclusion), Some(inclusion))
            if !exclusion.value.is_empty() && !inclusion.value.is_empty() =>
        {
            Err(Contradiction::error(
                DEEPSPEED_EXCLUSION_FILTER.name(),
                &exclusion,
                "absent where an inclusion filter is given",
                &inclusion,
            ))
        }
        _ => Ok(()),
    }
}
