//! What a cluster manager or an MPI launcher says about the place of this process.
//!
//! SLURM, PALS, the MPI launchers and PMIx each tell the processes they start who they are.
//! [`Cluster::read`] reads all of them, notes which variable said what, and refuses contradictions:
//! a program that believes the wrong one hangs at its first collective. What our own launcher and
//! `torchrun` say (`RANK`, `WORLD_SIZE`, ...) is another matter, see
//! [`Topology`](crate::topology::Topology).
//!
//! ```
//! use accelerate_plan::{cluster::{Cluster, Manager}, env::Environment};
//!
//! let env = Environment::from_pairs([
//!     ("SLURM_JOB_ID", "4711"),
//!     ("SLURM_STEP_ID", "0"),
//!     ("SLURM_PROCID", "1"),
//!     ("SLURM_LOCALID", "1"),
//!     ("SLURM_NTASKS", "2"),
//! ]);
//! let cluster = Cluster::read(&env)?.ok_or("one task only")?;
//! assert_eq!(cluster.manager(), Manager::Slurm);
//! assert_eq!(cluster.rank().variable, "SLURM_PROCID");
//! assert_eq!(cluster.world_size().value.get(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod allocation;
mod claims;
mod error;
mod host_list;
mod managers;

use std::{fmt, num::NonZeroUsize};

pub use allocation::Allocation;
pub use error::ClusterError;
pub use host_list::{HostListError, expand_host_list};
pub use managers::Manager;

use self::claims::{Claims, Fact};
use crate::{
    Error, Setting,
    env::{Environment, Found},
    topology::Rendezvous,
};

/// The place of this process among the tasks that a manager started together.
///
/// Always of more than one task, and consistent: an index is below its count, and processes of this
/// machine are part of all processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    claims: Claims,
    rank: Found<usize>,
    world_size: Found<NonZeroUsize>,
    allocation: Option<Allocation>,
}

impl Cluster {
    /// Reads what the managers say; `None` if this process is not one of several tasks.
    ///
    /// A shell or batch script inside a SLURM job is not: `SLURM_NTASKS` then says what `srun`
    /// would start. Nor is a step with one task, or the only process of an MPI launcher.
    ///
    /// Where several managers speak, what they say must agree. One nesting is understood: an MPI
    /// launcher inside a SLURM job starts one process of its own on each machine as a SLURM step,
    /// whose variables its processes inherit. If SLURM counts one task per machine and MPI counts
    /// more, MPI is right.
    ///
    /// # Errors
    /// [`ClusterError`], which names the variables and values concerned.
    pub fn read(env: &Environment) -> Result<Option<Self>, ClusterError> {
        let allocation = Allocation::read(env)?;
        let mut all = managers::read(env)?;
        leave_out_daemons(&mut all);
        if !all.iter().any(Claims::is_multi_task) {
            return Ok(None);
        }
        let mut every = all.into_iter();
        let Some(mut claims) = every.next() else {
            return Ok(None);
        };
        every.try_for_each(|other| claims.merge(&other))?;
        claims.complete();
        Self::from_claims(claims, allocation)
    }

    fn from_claims(
        claims: Claims,
        allocation: Option<Allocation>,
    ) -> Result<Option<Self>, ClusterError> {
        let Some(world) = claims.get(Fact::WorldSize) else {
            return Ok(None);
        };
        let rank = claims
            .get(Fact::Rank)
            .ok_or_else(|| ClusterError::RankMissing {
                known: setting(world),
                expected: claims.manager().rank_variable(),
            })?;
        check(&claims)?;
        let world_size = Found {
            variable: world.variable,
            value: NonZeroUsize::new(world.value).unwrap_or(NonZeroUsize::MIN),
        };
        Ok(Some(Self {
            claims,
            rank,
            world_size,
            allocation,
        }))
    }

    /// Who started the tasks. Of several that agree, the outermost one.
    pub fn manager(&self) -> Manager {
        self.claims.manager()
    }

    /// Number of this process among all, from 0.
    pub fn rank(&self) -> Found<usize> {
        self.rank
    }

    /// Number of processes, at least 2.
    pub fn world_size(&self) -> Found<NonZeroUsize> {
        self.world_size
    }

    /// Number of this process among those of its machine, from 0.
    pub fn local_rank(&self) -> Option<Found<usize>> {
        self.claims.get(Fact::LocalRank)
    }

    /// Number of processes on this machine, at least 1.
    pub fn local_world_size(&self) -> Option<Found<usize>> {
        self.claims.get(Fact::LocalWorldSize)
    }

    /// Number of this machine, from 0.
    pub fn node_rank(&self) -> Option<Found<usize>> {
        self.claims.get(Fact::NodeRank)
    }

    /// Number of machines, at least 1.
    pub fn nodes(&self) -> Option<Found<usize>> {
        self.claims.get(Fact::Nodes)
    }

    /// The job in which the tasks run, if the manager tells.
    pub fn allocation(&self) -> Option<&Allocation> {
        self.allocation.as_ref()
    }

    /// Where the processes can meet without being told: see [`Allocation::rendezvous`].
    pub fn rendezvous(&self) -> Option<Rendezvous> {
        self.allocation.as_ref()?.rendezvous()
    }
}

impl fmt::Display for Cluster {
    /// One line that says who this process is and which variables said so.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.manager())?;
        let pairs = [
            ("rank", Fact::Rank, Fact::WorldSize),
            ("local rank", Fact::LocalRank, Fact::LocalWorldSize),
            ("machine", Fact::NodeRank, Fact::Nodes),
        ];
        let known = pairs
            .into_iter()
            .filter_map(|(name, index, count)| self.describe(name, index, count));
        f.write_str(&known.collect::<Vec<_>>().join(", "))?;
        match &self.allocation {
            Some(allocation) => write!(f, "; {allocation}"),
            None => Ok(()),
        }
    }
}

impl Cluster {
    fn describe(&self, name: &str, index: Fact, count: Fact) -> Option<String> {
        let index = self.claims.get(index)?;
        Some(match self.claims.get(count) {
            Some(count) => format!(
                "{name} {} of {} (`{}`, `{}`)",
                index.value, count.value, index.variable, count.variable
            ),
            None => format!("{name} {} (`{}`)", index.value, index.variable),
        })
    }
}

/// Removes a SLURM step of one task per machine if an MPI launcher counts more tasks: these are the
/// launcher's own processes.
fn leave_out_daemons(all: &mut Vec<Claims>) {
    let largest = all.iter().filter_map(|claims| claims.get(Fact::WorldSize));
    let largest = largest.map(|world| world.value).max().unwrap_or(0);
    all.retain(|claims| {
        let world = claims.get(Fact::WorldSize).map_or(0, |world| world.value);
        let nodes = claims.get(Fact::Nodes).map_or(1, |nodes| nodes.value);
        claims.manager() != Manager::Slurm || world >= largest || world != nodes
    });
}

/// Refuses numbers that exclude each other.
fn check(claims: &Claims) -> Result<(), ClusterError> {
    let both = |left, right| claims.get(left).zip(claims.get(right));
    for (index, count) in [
        (Fact::Rank, Fact::WorldSize),
        (Fact::LocalRank, Fact::LocalWorldSize),
        (Fact::NodeRank, Fact::Nodes),
    ] {
        if let Some((index, count)) = both(index, count)
            && index.value >= count.value
        {
            let (index, count) = (setting(index), setting(count));
            return Err(Error::IndexOutOfRange { index, count }.into());
        }
    }
    for (part, whole) in [
        (Fact::LocalWorldSize, Fact::WorldSize),
        (Fact::Nodes, Fact::WorldSize),
        // On each machine, ranks are numbered in their order.
        (Fact::LocalRank, Fact::Rank),
    ] {
        if let Some((part, whole)) = both(part, whole)
            && part.value > whole.value
        {
            let (part, whole) = (setting(part), setting(whole));
            return Err(Error::PartAboveWhole { part, whole }.into());
        }
    }
    Ok(())
}

fn setting(found: Found<usize>) -> Setting {
    Setting {
        variable: found.variable,
        value: found.value,
        given: true,
    }
}

#[cfg(test)]
mod tests;
