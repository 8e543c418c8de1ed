//! How many processes run on which machine.

use std::num::NonZeroUsize;

use crate::{
    Contradiction, Error, Result,
    settings::{
        DISTRIBUTED_TYPE, DistributedType, MACHINE_RANK, MULTI_GPU, NUM_MACHINES, NUM_PROCESSES,
        NUM_PROCESSES_PER_MACHINE, Origin, Settings, Sourced,
    },
};

/// The machines of a job as far as this one knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Processes on this machine.
    pub local: NonZeroUsize,
    /// Who said how many.
    pub origin: Origin,
    /// Machines of the job.
    pub num_machines: NonZeroUsize,
    /// Number of this machine; `None` if the rendezvous gives it one.
    pub machine_rank: Option<usize>,
    /// Processes of the job, if they were given as one number.
    pub total: Option<NonZeroUsize>,
}

/// What the machine would run without being told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Accelerators that may be used.
    pub devices: usize,
}

impl Layout {
    /// Lays processes out as the settings say. A total that machines cannot share evenly gives the
    /// first of them one more.
    ///
    /// # Errors
    /// - [`Error::Unsettled`] if a number is missing that cannot be found out,
    /// - [`Error::Contradiction`] if two numbers exclude each other.
    pub fn of(settings: &Settings, cpu: bool, found: Found) -> Result<Self> {
        let machines = settings.sourced(&NUM_MACHINES);
        let num_machines = machines
            .as_ref()
            .map_or(NonZeroUsize::MIN, |given| given.value);
        let rank = settings.sourced(&MACHINE_RANK);
        if let (Some(rank), Some(machines)) = (&rank, &machines)
            && rank.value >= num_machines.get()
        {
            return Err(Contradiction::error(
                "machine_rank",
                rank,
                "below `num_machines`",
                machines,
            ));
        }
        let machine_rank = match num_machines.get() {
            1 => Some(0),
            _ => rank.map(|rank| rank.value),
        };
        let total = settings.given(&NUM_PROCESSES);
        let per_machine = settings.given(&NUM_PROCESSES_PER_MACHINE);
        let (local, origin) = match (&per_machine, &total) {
            (Some(per_machine), total) => {
                check_total(per_machine, total.as_ref(), num_machines)?;
                (per_machine.value, per_machine.origin.clone())
            }
            (None, Some(total)) => {
                let share = share(total, &machines, num_machines, machine_rank.unwrap_or(0))?;
                (share, total.origin.clone())
            }
            (None, None) => detected(settings, cpu, found)?,
        };
        let total = total.map(|total| total.value);
        Ok(Self {
            local,
            origin,
            num_machines,
            machine_rank,
            total,
        })
    }
}

fn check_total(
    per_machine: &Sourced<NonZeroUsize>,
    total: Option<&Sourced<NonZeroUsize>>,
    num_machines: NonZeroUsize,
) -> Result<()> {
    match total {
        // Machines may differ, but one cannot have more than all.
        Some(total)
            if per_machine.value > total.value
                || num_machines == NonZeroUsize::MIN && per_machine.value != total.value =>
        {
            Err(Contradiction::error(
                "num_processes_per_machine",
                per_machine,
                "a part of `num_processes`",
                total,
            ))
        }
        _ => Ok(()),
    }
}

fn share(
    total: &Sourced<NonZeroUsize>,
    machines: &Option<Sourced<NonZeroUsize>>,
    num_machines: NonZeroUsize,
    machine_rank: usize,
) -> Result<NonZeroUsize> {
    let base = total.value.get() / num_machines.get();
    let extra = usize::from(machine_rank < total.value.get() % num_machines.get());
    match (NonZeroUsize::new(base), machines) {
        (Some(base), _) => Ok(base.saturating_add(extra)),
        (None, Some(machines)) => Err(Contradiction::error(
            "num_processes",
            total,
            "at least `num_machines`",
            machines,
        )),
        (None, None) => Ok(NonZeroUsize::MIN),
    }
}

fn detected(settings: &Settings, cpu: bool, found: Found) -> Result<(NonZeroUsize, Origin)> {
    let one = |why: &str| Ok((NonZeroUsize::MIN, Origin::Detected(why.to_owned())));
    let kind = settings.sourced(&DISTRIBUTED_TYPE);
    let wants_several = settings.is_on(&MULTI_GPU)
        || kind
            .as_ref()
            .is_some_and(|kind| kind.value != DistributedType::No);
    match (cpu, NonZeroUsize::new(found.devices)) {
        (false, _) if matches!(&kind, Some(kind) if kind.value == DistributedType::No) => {
            one("the file asks for one process")
        }
        (false, Some(devices)) => Ok((
            devices,
            Origin::Detected(format!("one for each of {devices} devices")),
        )),
        (true, _) if !wants_several => one("on the CPU, more are asked for by number"),
        (false, None) if !wants_several => one("no accelerator found"),
        (_, _) => Err(Error::Unsettled {
            name: "num_processes",
            because: kind.map_or_else(|| settings.origin(&MULTI_GPU).clone(), |kind| kind.origin),
            why: "several processes are asked for, but not how many",
        }),
    }
}
