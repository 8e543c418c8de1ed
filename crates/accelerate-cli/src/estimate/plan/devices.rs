//! The devices that a model is to fit.

use accelerate_plan::{
    device_map::{MaxMemory, Placement},
    env::Environment,
};

use super::args::PlanArgs;
use crate::{
    estimate::error::{EstimateError, Result},
    machine::{self, Kind, Memory, Root, device_memory},
};

/// The devices of a machine, and the processes on all machines.
#[derive(Debug, Clone)]
pub(super) struct Devices {
    /// What each place of a machine may hold.
    pub(super) limits: MaxMemory,
    pub(super) detected: bool,
    pub(super) num_processes: u64,
    pub(super) num_machines: u64,
}

impl Devices {
    /// Those that the flags tell of, or those of this machine.
    ///
    /// # Errors
    /// [`EstimateError::NoDevice`], [`EstimateError::UnevenMachines`], and those of a machine whose
    /// memory is not known.
    pub(super) fn of(args: &PlanArgs) -> Result<Self> {
        let (limits, detected) = match &args.max_memory {
            Some(limits) => (limits.clone(), false),
            None => (of_this_machine()?, true),
        };
        let num_machines = args.num_machines.get();
        let accelerators = accelerators(&limits);
        if accelerators.is_empty() && limits.get(Placement::Cpu).unwrap_or(0) == 0 {
            return Err(EstimateError::NoDevice {
                limits: limits.to_string(),
            });
        }
        let each = accelerators.len().max(1) as u64;
        let all = each.saturating_mul(num_machines);
        let num_processes = args.num_processes.map_or(all, u64::from);
        if !num_processes.is_multiple_of(num_machines) {
            return Err(EstimateError::UnevenMachines {
                num_processes,
                num_machines,
            });
        }
        Ok(Self {
            limits,
            detected,
            num_processes,
            num_machines,
        })
    }

    /// The accelerators of a machine that may hold anything.
    pub(super) fn accelerators(&self) -> Vec<Placement> {
        accelerators(&self.limits)
    }

    /// Processes of a machine.
    pub(super) fn local_processes(&self) -> u64 {
        self.num_processes / self.num_machines
    }

    /// What one process may hold where it computes: the least of the devices that are used. Without
    /// accelerators, processes share CPU memory; so they do a device of which there are too few.
    pub(super) fn of_process(&self) -> u64 {
        let local = self.local_processes().max(1);
        let accelerators = self.accelerators();
        if accelerators.is_empty() {
            return self.cpu() / local;
        }
        let shared = local.div_ceil(accelerators.len() as u64);
        let used = accelerators
            .iter()
            .take(usize::try_from(local).unwrap_or(usize::MAX));
        let bytes = used.filter_map(|place| self.limits.get(*place));
        bytes.min().unwrap_or(0) / shared
    }

    /// The CPU memory of a machine.
    pub(super) fn cpu(&self) -> u64 {
        self.limits.get(Placement::Cpu).unwrap_or(0)
    }
}

fn accelerators(limits: &MaxMemory) -> Vec<Placement> {
    let places = limits.iter();
    let places = places.filter(|(place, bytes)| place.is_accelerator() && *bytes > 0);
    places.map(|(place, _)| place).collect()
}

fn of_this_machine() -> Result<MaxMemory> {
    let root = Root::machine();
    let memory = Memory::read(&root).ok_or(EstimateError::MachineMemory)?;
    let env = Environment::from_process();
    let devices = machine::Devices::read(&root, &env).map_err(EstimateError::Visible)?;
    let mut limits = MaxMemory::default();
    if devices.kind == Some(Kind::Mps) {
        // One memory for both.
        limits.insert(Placement::Mps, memory.usable());
        return Ok(limits);
    }
    limits.insert(Placement::Cpu, memory.usable());
    let Some(kind) = devices.kind.filter(|_| devices.count() > 0) else {
        return Ok(limits);
    };
    let unknown = || EstimateError::DeviceMemory {
        count: devices.count(),
        kind: kind.torch_name(),
    };
    let bytes = device_memory(&devices, &root).ok_or_else(unknown)?;
    for (index, bytes) in (0..).zip(bytes) {
        limits.insert(Placement::Accelerator(index), bytes);
    }
    Ok(limits)
}
