use std::ffi::OsString;
use std::num::{NonZeroU16, NonZeroUsize};
use std::time::Duration;

use accelerate_plan::MixedPrecision;
use accelerate_plan::env::{
    EnvOverlay, Environment, MAX_RESTARTS, MIXED_PRECISION, OMP_NUM_THREADS, RESTART_COUNT,
    USE_AGENT_STORE, USE_CPU,
};
use accelerate_plan::topology::{LOOPBACK, Rendezvous, Topology};

use crate::{Error, Result};

/// What a launcher starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchOptions {
    num_processes: usize,
    mixed_precision: MixedPrecision,
    use_port: Option<NonZeroU16>,
    master_addr: String,
    node_rank: usize,
    num_nodes: usize,
    pub(super) max_restarts: usize,
    pub(super) monitor_interval: Duration,
    pub(super) deadline: Option<Duration>,
    cpu: bool,
    environment: Vec<(String, String)>,
    pub(super) arguments: Option<Vec<OsString>>,
    /// Whether what the ranks write is kept instead of shown.
    pub(super) captured: bool,
}

impl LaunchOptions {
    /// `num_processes` ranks on this machine.
    #[must_use]
    pub fn new(num_processes: usize) -> Self {
        Self {
            num_processes,
            mixed_precision: MixedPrecision::No,
            use_port: None,
            master_addr: LOOPBACK.to_owned(),
            node_rank: 0,
            num_nodes: 1,
            max_restarts: 0,
            monitor_interval: Duration::from_millis(100),
            deadline: None,
            cpu: false,
            environment: Vec::new(),
            arguments: None,
            captured: false,
        }
    }

    /// Ranks on this machine's CPU for a test, or for a program that is tried out.
    pub(super) fn debug(num_processes: usize) -> Self {
        let mut options = Self::new(num_processes)
            .cpu(true)
            .monitor_interval(Duration::from_millis(10));
        if cfg!(target_os = "linux") {
            options = options.env("GLOO_SOCKET_IFNAME", "lo");
        }
        match std::thread::current().name() {
            None | Some("main") => options,
            Some(_) => options.in_this_test(),
        }
    }

    /// Starts only the test that this is called in: on the test's own thread, in a test of
    /// Rust's own harness. What the ranks write is kept, and shown if one fails.
    #[must_use]
    pub fn in_this_test(mut self) -> Self {
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        let arguments = [&*test, "--exact", "--nocapture", "--test-threads=1"];
        self.arguments = Some(arguments.map(OsString::from).to_vec());
        self.captured = true;
        self
    }

    /// In which precision the ranks compute.
    #[must_use]
    pub fn mixed_precision(mut self, precision: MixedPrecision) -> Self {
        self.mixed_precision = precision;
        self
    }

    /// The port at which the ranks meet, instead of a free one. Several machines need it.
    #[must_use]
    pub fn use_port(mut self, port: NonZeroU16) -> Self {
        self.use_port = Some(port);
        self
    }

    /// Makes this machine one of several: its number, how many there are, and the address
    /// of machine 0. Each of them launches.
    #[must_use]
    pub fn nodes(mut self, node_rank: usize, num_nodes: usize, master_addr: &str) -> Self {
        self.node_rank = node_rank;
        self.num_nodes = num_nodes;
        master_addr.clone_into(&mut self.master_addr);
        self
    }

    /// How often all ranks are started again when one fails; 0 if not changed.
    #[must_use]
    pub fn max_restarts(mut self, restarts: usize) -> Self {
        self.max_restarts = restarts;
        self
    }

    /// How often is looked whether a rank has failed; 100 ms if not changed.
    #[must_use]
    pub fn monitor_interval(mut self, interval: Duration) -> Self {
        self.monitor_interval = interval;
        self
    }

    /// How long one run may take; no limit if not changed.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Stays on the CPU even where there is a GPU.
    #[must_use]
    pub fn cpu(mut self, cpu: bool) -> Self {
        self.cpu = cpu;
        self
    }

    /// A variable for the ranks only; this process's own environment never changes.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// The arguments of the ranks' processes, instead of this process's own.
    #[must_use]
    pub fn arguments<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments = Some(arguments.into_iter().map(Into::into).collect());
        self
    }

    /// The ranks that are started here.
    #[must_use]
    pub fn num_processes(&self) -> usize {
        self.num_processes
    }

    /// The ranks on all machines.
    #[must_use]
    pub fn world(&self) -> usize {
        self.num_processes * self.num_nodes
    }

    pub(super) fn uses_cpu(&self) -> bool {
        self.cpu
    }

    /// The number of the first rank here.
    pub(super) fn first_rank(&self) -> usize {
        self.node_rank * self.num_processes
    }

    /// Whether the launcher can serve the store: it is the only one.
    pub(super) fn serves_store(&self) -> bool {
        self.num_nodes == 1
    }

    pub(super) fn port(&self) -> Option<NonZeroU16> {
        self.use_port
    }

    pub(super) fn check(&self) -> Result<()> {
        let wrong = |expected: &str, found: String| Error::Argument {
            operation: "launch",
            expected: expected.to_owned(),
            found,
        };
        if self.num_processes == 0 || self.num_nodes == 0 {
            return Err(wrong(
                "at least one process and one machine",
                "none".to_owned(),
            ));
        }
        if self.node_rank >= self.num_nodes {
            return Err(wrong(
                "the number of a machine below the number of machines",
                format!("machine {} of {}", self.node_rank, self.num_nodes),
            ));
        }
        if self.num_nodes > 1 && self.use_port.is_none() {
            return Err(wrong(
                "a port at which several machines meet (`use_port`)",
                "none".to_owned(),
            ));
        }
        if self.num_nodes > 1 && self.max_restarts > 0 {
            return Err(wrong(
                "no restarts with several machines, whose launchers do not know of each other",
                format!("{} restarts", self.max_restarts),
            ));
        }
        Ok(())
    }

    /// What rank `local` of this machine is told on top of what it inherits.
    pub(super) fn overlay(
        &self,
        local: usize,
        port: NonZeroU16,
        restart: usize,
    ) -> Result<EnvOverlay> {
        let size = |count: usize| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
        let place = Topology::new(
            self.first_rank() + local,
            size(self.world()),
            local,
            size(self.num_processes),
            Rendezvous {
                addr: self.master_addr.clone(),
                port,
            },
        )?;
        let mut overlay = place.overlay();
        overlay.set(&USE_AGENT_STORE, &self.serves_store());
        overlay.set(&MIXED_PRECISION, &self.mixed_precision);
        overlay.set(&RESTART_COUNT, &restart);
        overlay.set(&MAX_RESTARTS, &self.max_restarts);
        if self.cpu {
            overlay.set(&USE_CPU, &true);
        }
        if Environment::from_process().get(&OMP_NUM_THREADS)?.is_none() {
            overlay.set(&OMP_NUM_THREADS, &self.threads());
        }
        Ok(overlay)
    }

    /// Variables that the caller gave for the ranks.
    pub(super) fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// The cores of this machine, divided by its ranks.
    fn threads(&self) -> NonZeroUsize {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        NonZeroUsize::new(cores / self.num_processes).unwrap_or(NonZeroUsize::MIN)
    }
}
