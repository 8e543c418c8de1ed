//! The launch plan: what a launcher starts on this machine and what it tells each process.

use std::{
    ffi::OsString,
    fmt,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
};

use crate::{
    MixedPrecision,
    env::{
        DEBUG_MODE, EnvOverlay, GRADIENT_ACCUMULATION_STEPS, GROUP_RANK, GROUP_WORLD_SIZE,
        MAX_RESTARTS, MIXED_PRECISION, OMP_NUM_THREADS, RESTART_COUNT, ROLE_NAME, ROLE_RANK,
        ROLE_WORLD_SIZE, RUN_ID, USE_AGENT_STORE, USE_CPU,
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

    fn to_set(self) -> Option<NonZeroUsize> {
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

/// What a launcher starts on this machine.
///
/// Every machine of a job has the same number of processes; `num_nodes` is 1 for a job on one
/// machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchPlan {
    /// What to run.
    pub program: Program,
    /// Processes on this machine.
    pub num_processes: NonZeroUsize,
    /// Machines of the job.
    pub num_nodes: NonZeroUsize,
    /// Number of this machine, below `num_nodes`.
    pub node_rank: usize,
    /// Where the processes meet.
    pub rendezvous: Rendezvous,
    /// Whether the processes must stay on the CPU. `false` leaves it to them.
    pub cpu: bool,
    /// In which lower precision they compute.
    pub mixed_precision: MixedPrecision,
    /// Over how many steps they add up gradients; `None` leaves it to them.
    pub gradient_accumulation_steps: Option<NonZeroU32>,
    /// Whether they check collectives before running them.
    pub debug: bool,
    /// Threads of each process.
    pub threads: Threads,
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
        self.num_processes.saturating_mul(self.num_nodes)
    }

    /// The processes of this machine, in order of their local rank.
    ///
    /// A job of one process is told nothing about ranks: what it inherits about them, for example
    /// from an MPI launcher, stays in force.
    ///
    /// # Errors
    /// [`crate::Error::IndexOutOfRange`] if `node_rank` is not below `num_nodes`.
    pub fn ranks(&self) -> crate::Result<Vec<PlannedRank>> {
        (0..self.num_processes.get())
            .map(|local_rank| {
                let topology = self.topology(local_rank)?;
                let overlay = self.overlay(&topology);
                Ok(PlannedRank { topology, overlay })
            })
            .collect()
    }

    fn topology(&self, local_rank: usize) -> crate::Result<Topology> {
        Topology::new(
            self.node_rank * self.num_processes.get() + local_rank,
            self.world_size(),
            local_rank,
            self.num_processes,
            self.rendezvous.clone(),
        )
    }

    fn overlay(&self, topology: &Topology) -> EnvOverlay {
        let mut overlay = EnvOverlay::new();
        if self.world_size() > NonZeroUsize::MIN {
            overlay.extend(&topology.overlay());
            self.describe_group(topology, &mut overlay);
        }
        overlay.set(&MIXED_PRECISION, &self.mixed_precision);
        if self.cpu {
            overlay.set(&USE_CPU, &true);
        }
        if self.debug {
            overlay.set(&DEBUG_MODE, &true);
        }
        if let Some(steps) = &self.gradient_accumulation_steps {
            overlay.set(&GRADIENT_ACCUMULATION_STEPS, steps);
        }
        if let Some(threads) = &self.threads.to_set() {
            overlay.set(&OMP_NUM_THREADS, threads);
        }
        overlay
    }

    /// What `torchrun` tells its processes beyond their place, so that programs written for it run
    /// here too. Rank 0 serves the store itself.
    fn describe_group(&self, topology: &Topology, overlay: &mut EnvOverlay) {
        overlay.set(&GROUP_RANK, &self.node_rank);
        overlay.set(&GROUP_WORLD_SIZE, &self.num_nodes);
        overlay.set(&ROLE_NAME, &"default".to_owned());
        overlay.set(&ROLE_RANK, &topology.rank());
        overlay.set(&ROLE_WORLD_SIZE, &self.world_size());
        overlay.set(&USE_AGENT_STORE, &false);
        overlay.set(&RESTART_COUNT, &0);
        overlay.set(&MAX_RESTARTS, &0);
        overlay.set(&RUN_ID, &"none".to_owned());
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
        write!(f, "processes: {}", self.num_processes)?;
        match self.num_nodes.get() {
            1 => writeln!(f)?,
            nodes => writeln!(f, " on node {} of {nodes}", self.node_rank)?,
        }
        if self.world_size() > NonZeroUsize::MIN {
            writeln!(f, "rendezvous: {}", self.rendezvous)?;
        }
        writeln!(f, "device: {device}")?;
        writeln!(f, "mixed precision: {}", self.mixed_precision)?;
        write!(f, "threads per process: {}", self.threads)
    }
}
