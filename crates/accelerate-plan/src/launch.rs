//! The launch plan: what a launcher starts on this machine and what it tells each process.

mod checks;
mod environment;
mod layout;
mod mesh;
mod strategy;
mod unused;

use std::{ffi::OsString, fmt, num::NonZeroUsize, path::PathBuf};

pub use checks::check;
pub use environment::{environment, uses_mesh};
pub use layout::{Found, Layout};
pub use mesh::{MeshMismatch, check_mesh};
pub use strategy::{Strategy, cpu};
pub use unused::{Unread, Unused, unused};

use crate::{
    env::{
        EnvOverlay, GROUP_RANK, GROUP_WORLD_SIZE, KMP_AFFINITY, KMP_BLOCKTIME, MAX_RESTARTS,
        NCCL_ASYNC_ERROR_HANDLING, OMP_NUM_THREADS, RESTART_COUNT, ROLE_NAME, ROLE_RANK,
        ROLE_WORLD_SIZE, RUN_ID, USE_AGENT_STORE,
    },
    topology::{Rendezvous, Topology},
};

/// The program that every process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// What the user calls it: the script or module, not its interpreter.
    pub name: String,
    /// File to execute.
    pub executable: PathBuf,
    /// Its arguments, without the name of the program itself.
    pub arguments: Vec<OsString>,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.executable.display())?;
        self.arguments
            .iter()
            .try_for_each(|argument| write!(f, " {}", argument.display()))
    }
}

/// How many threads each process computes with, and who said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// A flag gave the number.
    Flag(NonZeroUsize),
    /// `OMP_NUM_THREADS` was set already and reaches the processes as it is.
    Inherited,
    /// The usable cores were shared out.
    Shared {
        /// Threads of each process.
        per_process: NonZeroUsize,
        /// Cores that this machine lets us use.
        cores: NonZeroUsize,
    },
}

impl Threads {
    /// Shares `cores` out among `processes`, at least one each.
    pub fn share(cores: NonZeroUsize, processes: NonZeroUsize) -> Self {
        let per_process =
            NonZeroUsize::new(cores.get() / processes.get()).unwrap_or(NonZeroUsize::MIN);
        Self::Shared { per_process, cores }
    }

    /// The number that processes must be told; `None` if they inherit it.
    pub fn to_set(self) -> Option<NonZeroUsize> {
        match self {
            Self::Flag(per_process) | Self::Shared { per_process, .. } => Some(per_process),
            Self::Inherited => None,
        }
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(per_process) => write!(f, "{per_process} (by flag)"),
            Self::Inherited => f.write_str("as `OMP_NUM_THREADS` says"),
            Self::Shared { per_process, cores } => {
                write!(f, "{per_process} ({cores} usable cores)")
            }
        }
    }
}

/// The machines of a job and their processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    counts: Vec<NonZeroUsize>,
    this: usize,
}

impl Nodes {
    /// One machine with this many processes.
    pub fn one(count: NonZeroUsize) -> Self {
        Self {
            counts: vec![count],
            this: 0,
        }
    }

    /// Machines with these numbers of processes, of which this one has number `this`; `None` if
    /// there is no such machine.
    pub fn new(counts: Vec<NonZeroUsize>, this: usize) -> Option<Self> {
        (this < counts.len()).then_some(Self { counts, this })
    }

    /// Number of machines.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether there is no machine: never.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Number of this machine.
    pub fn this(&self) -> usize {
        self.this
    }

    /// Processes on this machine.
    pub fn local(&self) -> NonZeroUsize {
        self.counts[self.this]
    }

    /// Processes on each machine.
    pub fn counts(&self) -> &[NonZeroUsize] {
        &self.counts
    }

    /// Rank of the first process of this machine.
    pub fn base(&self) -> usize {
        self.counts[..self.this]
            .iter()
            .map(|count| count.get())
            .sum()
    }

    /// Processes on all machines.
    pub fn total(&self) -> NonZeroUsize {
        let total = self.counts.iter().map(|count| count.get()).sum();
        NonZeroUsize::new(total).unwrap_or(NonZeroUsize::MIN)
    }
}

/// The role of the processes of one machine, and their place among those of the same role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// Number of the first process of this machine among them.
    pub base: usize,
    /// How many there are.
    pub size: NonZeroUsize,
}

impl Role {
    /// A role that all processes of a job have.
    pub fn of_all(name: impl Into<String>, nodes: &Nodes) -> Self {
        Self {
            name: name.into(),
            base: nodes.base(),
            size: nodes.total(),
        }
    }
}

/// Which attempt this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Restarts {
    /// How often the job was started again.
    pub count: usize,
    /// How often it may be.
    pub allowed: usize,
}

/// What a launcher starts on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchPlan {
    /// What to run.
    pub program: Program,
    /// The machines of the job.
    pub nodes: Nodes,
    /// Where the processes meet.
    pub rendezvous: Rendezvous,
    /// Whether the processes stay on the CPU. `false` leaves it to them.
    pub cpu: bool,
    /// What every process is told besides its place: see [`environment()`].
    pub shared: EnvOverlay,
    /// Threads of each process.
    pub threads: Threads,
    /// Role that the processes of this machine play.
    pub role: Role,
    /// Whether the launcher serves the store, so that rank 0 too connects as a client.
    pub store_is_served: bool,
    /// Name of the run.
    pub run_id: String,
    /// Which attempt this is.
    pub restarts: Restarts,
}

/// One process of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRank {
    /// Its place in the job.
    pub topology: Topology,
    /// What it is told on top of what it inherits.
    pub overlay: EnvOverlay,
}

impl LaunchPlan {
    /// Number of processes in the job, on all machines.
    pub fn world_size(&self) -> NonZeroUsize {
        self.nodes.total()
    }

    /// The processes of this machine, in order of their local rank.
    ///
    /// A job of one process is told nothing about ranks: what it inherits about them, for example
    /// from an MPI launcher, stays in force.
    ///
    /// # Errors
    /// [`crate::Error::IndexOutOfRange`], which [`Nodes`] makes impossible.
    pub fn ranks(&self) -> crate::Result<Vec<PlannedRank>> {
        (0..self.nodes.local().get())
            .map(|local_rank| {
                let topology = self.topology(local_rank)?;
                let overlay = self.overlay(&topology);
                Ok(PlannedRank { topology, overlay })
            })
            .collect()
    }

    fn topology(&self, local_rank: usize) -> crate::Result<Topology> {
        Topology::new(
            self.nodes.base() + local_rank,
            self.world_size(),
            local_rank,
            self.nodes.local(),
            self.rendezvous.clone(),
        )
    }

    fn overlay(&self, topology: &Topology) -> EnvOverlay {
        let mut overlay = EnvOverlay::new();
        if self.world_size() > NonZeroUsize::MIN {
            overlay.extend(&topology.overlay());
            self.describe_group(topology, &mut overlay);
        }
        overlay.extend(&self.shared);
        if self.cpu && self.nodes.local() == NonZeroUsize::MIN {
            // Several processes would all be pinned to the same cores.
            overlay.set(&KMP_AFFINITY, &"granularity=fine,compact,1,0".to_owned());
            overlay.set(&KMP_BLOCKTIME, &1);
        }
        if let Some(threads) = &self.threads.to_set() {
            overlay.set(&OMP_NUM_THREADS, threads);
        }
        overlay
    }

    /// What `torchrun` tells its processes beyond their place, so that programs written for it run
    /// here too.
    fn describe_group(&self, topology: &Topology, overlay: &mut EnvOverlay) {
        overlay.set(&GROUP_RANK, &self.nodes.this());
        overlay.set(
            &GROUP_WORLD_SIZE,
            &NonZeroUsize::new(self.nodes.len()).unwrap_or(NonZeroUsize::MIN),
        );
        overlay.set(&ROLE_NAME, &self.role.name);
        overlay.set(&ROLE_RANK, &(self.role.base + topology.local_rank()));
        overlay.set(&ROLE_WORLD_SIZE, &self.role.size);
        overlay.set(&USE_AGENT_STORE, &self.store_is_served);
        overlay.set(&RESTART_COUNT, &self.restarts.count);
        overlay.set(&MAX_RESTARTS, &self.restarts.allowed);
        overlay.set(&RUN_ID, &self.run_id);
        overlay.set(&NCCL_ASYNC_ERROR_HANDLING, &1);
    }
}

impl fmt::Display for LaunchPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = if self.cpu {
            "cpu"
        } else {
            "chosen by each process"
        };
        writeln!(f, "program: {}", self.program)?;
        write!(f, "processes: {}", self.nodes.local())?;
        match self.nodes.len() {
            1 => writeln!(f)?,
            nodes => writeln!(
                f,
                " on node {} of {nodes}, {} in all",
                self.nodes.this(),
                self.world_size()
            )?,
        }
        if self.world_size() > NonZeroUsize::MIN {
            writeln!(f, "rendezvous: {}", self.rendezvous)?;
        }
        writeln!(f, "device: {device}")?;
        write!(f, "threads per process: {}", self.threads)
    }
}
