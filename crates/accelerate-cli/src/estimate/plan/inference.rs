//! Ways of running a model, from the fastest to the slowest.

use accelerate_plan::device_map::{MaxMemory, MemorySize, Mode, Placement};
use serde::Serialize;

use super::devices::Devices;
use crate::estimate::{
    dtypes::LoadDtype,
    error::Result,
    inference::weights_bytes,
    mapping::{Mapped, Wanted, mapped},
    shape::Shape,
};

/// A way of running a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Way {
    /// Whole on one device.
    Plain,
    /// Its blocks spread over devices.
    Pipelined,
    /// Partly in CPU memory.
    CpuOffload,
    /// Partly on disk.
    DiskOffload,
}

impl Way {
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Pipelined => "pipelined",
            Self::CpuOffload => "offloaded to CPU memory",
            Self::DiskOffload => "offloaded to disk",
        }
    }
}

/// A way of running a model and what it takes. Sizes in bytes.
#[derive(Debug, Clone, Serialize)]
pub(super) struct InferenceWay {
    pub(super) way: Way,
    pub(super) fits: bool,
    /// The most that a device holds.
    pub(super) device_bytes: u64,
    /// Of a machine.
    pub(super) cpu_bytes: u64,
    /// Of a machine.
    pub(super) disk_bytes: u64,
    /// Why it does not fit.
    pub(super) problem: Option<String>,
    pub(super) map: Option<Mapped>,
}

/// All ways that there are on these devices.
///
/// # Errors
/// Those of [`mapped`].
pub(super) fn ways(
    shape: &Shape,
    dtype: LoadDtype,
    cache_bytes: u64,
    devices: &Devices,
) -> Result<Vec<InferenceWay>> {
    let accelerators = devices.accelerators();
    let whole = weights_bytes(shape, dtype).saturating_add(cache_bytes);
    let mut ways = vec![plain(whole, devices)];
    let map = |limits: &MaxMemory, mode| {
        mapped(&Wanted {
            shape,
            dtype: Some(dtype.element()),
            cache_bytes,
            limits,
            mode,
            detected: devices.detected,
        })
    };
    let only = |wanted: &dyn Fn(Placement) -> bool| -> MaxMemory {
        let limits = devices.limits.iter();
        limits.filter(|(place, _)| wanted(*place)).collect()
    };
    if accelerators.len() > 1 {
        let limits = only(&|place| place.is_accelerator());
        ways.push(spread(
            Way::Pipelined,
            map(&limits, Mode::Balanced)?,
            devices,
        ));
    }
    if !accelerators.is_empty() && devices.cpu() > 0 {
        let limits = only(&|place| place != Placement::Disk);
        ways.push(spread(
            Way::CpuOffload,
            map(&limits, Mode::Sequential)?,
            devices,
        ));
    }
    // Without CPU memory in between only where there is none.
    let limits = only(&|place| place != Placement::Disk);
    ways.push(spread(
        Way::DiskOffload,
        map(&limits, Mode::Sequential)?,
        devices,
    ));
    Ok(ways)
}

/// Every process has the whole model.
fn plain(whole: u64, devices: &Devices) -> InferenceWay {
    let limit = devices.of_process();
    let on_cpu = devices.accelerators().is_empty();
    let all = whole.saturating_mul(devices.local_processes());
    InferenceWay {
        way: Way::Plain,
        fits: whole <= limit,
        device_bytes: whole,
        cpu_bytes: if on_cpu { all } else { 0 },
        disk_bytes: 0,
        problem: (whole > limit).then(|| too_much("each process", whole, limit)),
        map: None,
    }
}

fn spread(way: Way, map: Mapped, devices: &Devices) -> InferenceWay {
    let has_accelerators = !devices.accelerators().is_empty();
    let held = |place: Placement| {
        let used = map.places.iter().find(|used| used.place == place);
        used.map_or(0, |used| {
            used.weights_bytes.saturating_add(used.cache_bytes)
        })
    };
    let devices = map.places.iter().map(|used| used.place);
    let device_bytes = devices
        .filter(|place| place.is_accelerator())
        .map(held)
        .max();
    let cpu_bytes = held(Placement::Cpu);
    let disk_bytes = held(Placement::Disk);
    let problem = match way {
        Way::Pipelined if map.uses(Placement::Disk) => Some(format!(
            "{} do not fit the devices",
            MemorySize::from_bytes(disk_bytes).exact()
        )),
        Way::CpuOffload if map.uses(Placement::Disk) => Some(format!(
            "{} fit neither the devices nor CPU memory",
            MemorySize::from_bytes(disk_bytes).exact()
        )),
        Way::CpuOffload | Way::DiskOffload if has_accelerators && !map.uses_accelerator() => {
            let told = "no part of the model fits an accelerator beside room for its largest block";
            Some(map.problem.clone().unwrap_or_else(|| told.to_owned()))
        }
        _ => map.problem.clone(),
    };
    InferenceWay {
        way,
        fits: problem.is_none(),
        device_bytes: device_bytes.unwrap_or(cpu_bytes),
        cpu_bytes,
        disk_bytes,
        problem,
        map: Some(map),
    }
}

/// Says that something needs more than there is.
pub(super) fn too_much(who: &str, needed: u64, limit: u64) -> String {
    format!(
        "{who} needs {} and has {}",
        MemorySize::from_bytes(needed).exact(),
        MemorySize::from_bytes(limit).exact()
    )
}
