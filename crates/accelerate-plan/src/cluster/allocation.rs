//! The SLURM job: its machines, and the sizes of the step in which this process runs.

use std::{fmt, num::NonZeroU16};

use super::{
    ClusterError,
    claims::{Claims, Fact},
    host_list::{expand_counts, expand_host_list},
    managers::count,
    setting,
};
use crate::{
    Result,
    env::{
        Environment, Found, SLURM_JOB_ID, SLURM_JOB_NODELIST, SLURM_JOB_NUM_NODES, SLURM_NNODES,
        SLURM_NODELIST, SLURM_NTASKS, SLURM_STEP_ID, SLURM_STEP_NODELIST, SLURM_STEP_NUM_NODES,
        SLURM_STEP_NUM_TASKS, SLURM_STEP_TASKS_PER_NODE, SLURM_TASKS_PER_NODE,
    },
    topology::Rendezvous,
};

/// Machines that a cluster manager reserved for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    job: String,
    hosts: Option<Found<Vec<String>>>,
}

impl Allocation {
    /// Lowest port that is derived from a job, see [`Allocation::rendezvous`].
    pub const FIRST_PORT: u16 = 15_000;

    /// Reads the SLURM job around this process; `None` outside of one.
    ///
    /// Inside a step, the machines are those of the step.
    ///
    /// # Errors
    /// [`ClusterError`] if a variable cannot be read.
    pub fn read(env: &Environment) -> Result<Option<Self>, ClusterError> {
        let Some(job) = env.get(&SLURM_JOB_ID)? else {
            return Ok(None);
        };
        let list = env.first(&[&SLURM_STEP_NODELIST, &SLURM_NODELIST, &SLURM_JOB_NODELIST])?;
        let hosts = list.map(expand).transpose()?;
        Ok(Some(Self { job, hosts }))
    }

    /// The manager's name for the job.
    pub fn job(&self) -> &str {
        &self.job
    }

    /// The machines in order, and the variable that lists them; `None` if none does.
    pub fn hosts(&self) -> Option<&Found<Vec<String>>> {
        self.hosts.as_ref()
    }

    /// Where the processes of the job can meet: on its first machine, where rank 0 runs, at port
    /// 15000 plus the last four digits of the job's number. That port is the same for all processes
    /// without a word between them, and differs between jobs that share a machine; two steps of one
    /// job at the same time need a port each from their user. `None` if the machines are not known
    /// or the job has no number.
    pub fn rendezvous(&self) -> Option<Rendezvous> {
        let addr = self.hosts.as_ref()?.value.first()?.clone();
        let number: u64 = self.job.parse().ok()?;
        let offset = u16::try_from(number % 10_000).ok()?;
        let port = NonZeroU16::new(Self::FIRST_PORT + offset)?;
        Some(Rendezvous { addr, port })
    }
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More names would fill the line without telling more.
        const SHOWN: usize = 4;
        write!(f, "SLURM job {}", self.job)?;
        let Some(hosts) = &self.hosts else {
            return Ok(());
        };
        let hosts = &hosts.value;
        let shown = hosts[..hosts.len().min(SHOWN)].join(", ");
        match hosts.len() {
            more if more > SHOWN => write!(f, " on {more} machines: {shown}, ..."),
            _ => write!(f, " on {shown}"),
        }
    }
}

/// Whether this process is a task that `srun` started.
///
/// Batch scripts and interactive shells run in steps with names or with reserved numbers, just below
/// the largest number of 32 bits.
pub(super) fn in_step(env: &Environment) -> Result<bool> {
    const FIRST_RESERVED: u32 = 0xffff_fff0;
    let step = env.get(&SLURM_STEP_ID)?;
    let number = step.and_then(|step| step.parse::<u32>().ok());
    Ok(number.is_some_and(|number| number < FIRST_RESERVED))
}

/// Reads how many tasks and machines a step has. Variables of the step come before those that a user
/// may have kept from the job around it (`srun --preserve-env`).
pub(super) fn read_sizes(env: &Environment, claims: &mut Claims) -> Result<(), ClusterError> {
    let tasks = count(env, &[&SLURM_STEP_NUM_TASKS, &SLURM_NTASKS])?;
    let nodes = [&SLURM_STEP_NUM_NODES, &SLURM_NNODES, &SLURM_JOB_NUM_NODES];
    let nodes = count(env, &nodes.map(|variable| variable as _))?;
    claims.set(Fact::WorldSize, tasks);
    claims.set(Fact::Nodes, nodes);
    let list = env.first(&[&SLURM_STEP_TASKS_PER_NODE, &SLURM_TASKS_PER_NODE])?;
    let Some(list) = list else {
        return Ok(());
    };
    let counts = expand_counts(&list.value).ok_or_else(|| ClusterError::TaskList {
        variable: list.variable,
        value: list.value.clone(),
    })?;
    let (variable, sum) = (list.variable, counts.iter().sum());
    match (tasks, nodes) {
        (Some(tasks), _) if tasks.value != sum => Err(ClusterError::ListAgainstCount {
            meaning: "tasks",
            list: variable,
            found: sum,
            count: setting(tasks),
        }),
        (_, Some(nodes)) if nodes.value != counts.len() => Err(ClusterError::ListAgainstCount {
            meaning: "machines",
            list: variable,
            found: counts.len(),
            count: setting(nodes),
        }),
        _ => {
            let node = claims.get(Fact::NodeRank).map_or(0, |node| node.value);
            let here = counts.get(node).copied();
            // Without a node rank, the first count is right only if it is the only one.
            let known = claims.get(Fact::NodeRank).is_some() || counts.len() == 1;
            let here = here.filter(|_| known);
            claims.set(
                Fact::LocalWorldSize,
                here.map(|value| Found { variable, value }),
            );
            Ok(())
        }
    }
}

fn expand(list: Found<String>) -> Result<Found<Vec<String>>, ClusterError> {
    let variable = list.variable;
    match expand_host_list(&list.value) {
        Ok(value) => Ok(Found { variable, value }),
        Err(source) => Err(ClusterError::HostList {
            variable,
            value: list.value,
            source,
        }),
    }
}
