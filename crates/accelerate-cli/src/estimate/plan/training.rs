//! Ways of training a model, from the fastest to the slowest.

use std::path::PathBuf;

use accelerate_plan::{
    MixedPrecision,
    parallel::{Offload, Storage, memory::Placed},
};
use serde::Serialize;

use super::{devices::Devices, inference::too_much};
use crate::estimate::training::{Inventory, Layout, Optimizer, Sharding, compiled};

/// A way of training a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Way {
    /// Every process has everything.
    Plain,
    /// The optimizer in shards.
    #[serde(rename = "stage_1")]
    Stage1,
    /// Gradients too.
    #[serde(rename = "stage_2")]
    Stage2,
    /// Weights too.
    #[serde(rename = "stage_3")]
    Stage3,
    /// The same, with all shards in CPU memory.
    #[serde(rename = "stage_3_cpu")]
    Stage3Cpu,
    /// The same, with all shards on disk.
    #[serde(rename = "stage_3_disk")]
    Stage3Disk,
}

impl Way {
    const ALL: [Self; 6] = [
        Self::Plain,
        Self::Stage1,
        Self::Stage2,
        Self::Stage3,
        Self::Stage3Cpu,
        Self::Stage3Disk,
    ];

    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Plain => "plain (DDP)",
            Self::Stage1 => "sharded, stage 1",
            Self::Stage2 => "sharded, stage 2",
            Self::Stage3 => "sharded, stage 3",
            Self::Stage3Cpu => "stage 3, offloaded to CPU memory",
            Self::Stage3Disk => "stage 3, offloaded to disk",
        }
    }

    fn sharding(self) -> Sharding {
        match self {
            Self::Plain => Sharding::Ddp,
            Self::Stage1 => Sharding::Zero1,
            Self::Stage2 => Sharding::Zero2,
            Self::Stage3 | Self::Stage3Cpu | Self::Stage3Disk => Sharding::FullShard,
        }
    }

    fn storage(self) -> Storage {
        match self {
            Self::Stage3Cpu => Storage::Cpu { is_pinned: false },
            Self::Stage3Disk => Storage::Disk {
                folder: PathBuf::new(),
            },
            _ => Storage::Device,
        }
    }
}

/// A way of training a model and what it takes. Sizes in bytes.
#[derive(Debug, Clone, Serialize)]
pub(super) struct TrainingWay {
    pub(super) way: Way,
    pub(super) fits: bool,
    /// Over how many processes something is spread.
    pub(super) shards: u64,
    /// Of the process with the most.
    pub(super) device_bytes: u64,
    /// Of a machine.
    pub(super) cpu_bytes: u64,
    /// Of a machine.
    pub(super) disk_bytes: u64,
    pub(super) weights_bytes: u64,
    pub(super) copies_bytes: u64,
    pub(super) gradients_bytes: u64,
    pub(super) optimizer_bytes: u64,
    /// Why it does not fit.
    pub(super) problem: Option<String>,
}

/// All ways that there are on these devices. One process shards nothing, and a CPU offloads nothing
/// to its own memory.
pub(super) fn ways(
    inventory: &Inventory,
    optimizer: Optimizer,
    precision: MixedPrecision,
    devices: &Devices,
) -> Vec<TrainingWay> {
    let on_cpu = devices.accelerators().is_empty();
    let is_there = |way: &Way| match way {
        Way::Plain | Way::Stage3Disk => true,
        Way::Stage1 | Way::Stage2 | Way::Stage3 => devices.num_processes > 1,
        Way::Stage3Cpu => !on_cpu,
    };
    let ways = Way::ALL.into_iter().filter(is_there);
    ways.map(|way| counted(way, inventory, optimizer, precision, devices))
        .collect()
}

fn counted(
    way: Way,
    inventory: &Inventory,
    optimizer: Optimizer,
    precision: MixedPrecision,
    devices: &Devices,
) -> TrainingWay {
    let layout = Layout {
        num_processes: devices.num_processes,
        num_machines: devices.num_machines,
    };
    let shards = way.sharding().degree(layout);
    let mut plan = compiled(way.sharding(), shards, precision);
    plan.offload = Offload::everything(way.storage());
    let sizes = inventory.sizes(optimizer, true);
    let memory = plan.rank_memory(&sizes, 0);
    let placed = plan.placed_memory(&sizes, 0);
    let of_machine = |bytes: u64| bytes.saturating_mul(devices.local_processes());
    let on_cpu = devices.accelerators().is_empty();
    let cpu_bytes = match on_cpu {
        true => of_machine(placed.cpu.saturating_add(placed.device)),
        false => of_machine(placed.cpu),
    };
    let problem = problem(placed, cpu_bytes, on_cpu, devices);
    TrainingWay {
        way,
        fits: problem.is_none(),
        shards,
        device_bytes: placed.device,
        cpu_bytes,
        disk_bytes: of_machine(placed.disk),
        weights_bytes: memory.weights,
        copies_bytes: memory.copies,
        gradients_bytes: memory.gradients,
        optimizer_bytes: memory.optimizer,
        problem,
    }
}

fn problem(placed: Placed, cpu_bytes: u64, on_cpu: bool, devices: &Devices) -> Option<String> {
    let limit = devices.of_process();
    if placed.device > limit {
        return Some(too_much("each process", placed.device, limit));
    }
    let cpu = devices.cpu();
    (!on_cpu && cpu_bytes > cpu).then(|| too_much("the CPU of each machine", cpu_bytes, cpu))
}
