//! The attempts of a job on several machines: each begins where all launchers have met.

use std::{
    num::{NonZeroU16, NonZeroUsize},
    sync::mpsc,
    thread,
    time::Duration,
};

use accelerate_plan::{
    env::{
        CONFIG_DS_FIELDS, CPU_AFFINITY, DEEPSPEED_CONFIG_FILE,
        DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH, DEEPSPEED_OFFLOAD_PARAM_NVME_PATH,
    },
    launch::{
        LaunchPlan, Layout, Nodes as NodeCounts, Restarts, Role, Strategy, environment, uses_mesh,
    },
    settings::{
        MACHINE_RANK, MAIN_PROCESS_IP, MAIN_PROCESS_PORT, NUM_PROCESSES, NUM_PROCESSES_PER_MACHINE,
        RDZV_BACKEND, RdzvBackend, Settings, TABLE,
    },
    topology::Rendezvous,
};

use super::{
    attempts::{Call, Rounds},
    ended::{Ended, FirstFailure, Outcome},
    handling::RUN_ID,
    port::Reservation,
    rendezvous::{
        Backend, Barrier, Cause, Endpoint, Failure, Interrupt, JoinRequest, NodeView, Nodes,
        Options, PeerEvent, Round, Timing, Waiting,
    },
    tree::Exit,
};
use crate::{
    error::{Error, Result},
    report,
};

/// How long launchers whose ranks have succeeded wait for the others.
const EXIT_BARRIER: Duration = Duration::from_secs(300);

/// How often a wait looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// A job on several machines.
#[derive(Debug)]
pub(crate) struct Machines {
    plan: LaunchPlan,
    request: JoinRequest,
    nodes: Option<Nodes>,
    /// Keeps the port for rank 0, if that is a process of this machine.
    reservation: Option<Reservation>,
    interrupt: Interrupt,
    talk: Talk,
}

/// What is said while machines meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Talk {
    /// Nothing at all.
    pub(crate) quiet: bool,
    /// The places of all machines, too.
    pub(crate) debug: bool,
}

impl Machines {
    /// A job whose ranks on this machine follow `plan`, as soon as the machines have met.
    pub(crate) fn new(plan: LaunchPlan, request: JoinRequest, talk: Talk) -> Self {
        Self {
            talk,
            plan,
            request,
            nodes: None,
            reservation: None,
            interrupt: Interrupt::default(),
        }
    }

    /// What runs on this machine; its place among the others is not known yet.
    pub(crate) fn plan(&self) -> &LaunchPlan {
        &self.plan
    }

    /// How the machines meet.
    pub(crate) fn request(&self) -> &JoinRequest {
        &self.request
    }

    /// Says goodbye. Where this launcher keeps what the others read, they have time to learn how the
    /// job ended.
    fn leave(&mut self) {
        if let Some(nodes) = self.nodes.take() {
            nodes.leave();
        }
    }

    fn take_place(&mut self, round: Round) -> Option<LaunchPlan> {
        let counts: Option<Vec<_>> = round
            .counts
            .iter()
            .copied()
            .map(NonZeroUsize::new)
            .collect();
        let nodes = NodeCounts::new(counts?, round.node_rank)?;
        let role = Role {
            name: self.plan.role.name.clone(),
            base: round.base_role_rank,
            size: NonZeroUsize::new(round.role_world_size)?,
        };
        self.reservation = round.reservation;
        Some(LaunchPlan {
            nodes,
            role,
            rendezvous: Rendezvous {
                addr: round.meeting_point.address,
                port: round.meeting_point.port.try_into().ok()?,
            },
            store_is_served: round.meeting_point.served_by_launcher,
            restarts: Restarts {
                count: round.number,
                ..self.plan.restarts
            },
            ..self.plan.clone()
        })
    }
}

impl Rounds for Machines {
    fn next(&mut self, call: &Call) -> Result<LaunchPlan> {
        let _watch = InterruptWatch::start(call, self.interrupt.clone());
        let talk = self.talk;
        let mut tell = |waiting: &Waiting| {
            if !talk.quiet {
                report::note(&waiting.to_string(), &[]);
            }
        };
        let nodes = match &mut self.nodes {
            Some(nodes) => nodes,
            empty => empty.insert(Nodes::join(
                self.request.clone(),
                &self.interrupt,
                &mut tell,
            )?),
        };
        let round = nodes.next_round(self.plan.nodes.local(), &mut tell)?;
        let outside = call.outside.clone();
        nodes.subscribe(move |event| {
            if !matches!(event, PeerEvent::Finished) {
                outside.peer_failed(event.to_string());
            }
        });
        if talk.debug && !talk.quiet {
            report::note("the machines have met:", &describe(&round));
        }
        self.take_place(round).ok_or(Error::BadRound)
    }

    fn failed(&mut self, failure: FirstFailure) {
        if let Some(nodes) = &mut self.nodes {
            // The others notice the end of this launcher in any case.
            let _ = nodes.report_failure(Failure {
                rank: Some(failure.rank),
                cause: cause(failure.exit),
            });
        }
    }

    fn may_go_on(&self) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| {
            nodes.restart_is_left() && nodes.event().is_none_or(|event| event.allows_restart())
        })
    }

    fn finish(&mut self, call: &Call, ended: &Ended) -> Result<Option<String>> {
        let Some(nodes) = &mut self.nodes else {
            return Ok(None);
        };
        let _watch = InterruptWatch::start(call, self.interrupt.clone());
        match &ended.outcome {
            Outcome::Success | Outcome::Left => match nodes.exit_barrier(EXIT_BARRIER) {
                Barrier::Passed | Barrier::TimedOut | Barrier::Interrupted => {
                    self.leave();
                    Ok(None)
                }
                Barrier::Broken(event) => Ok(Some(event.to_string())),
            },
            Outcome::Interrupted { signal } => {
                let cause = Cause::Stopped(*signal);
                let _ = nodes.report_failure(Failure { rank: None, cause });
                self.leave();
                Ok(None)
            }
            Outcome::TimedOut { .. } => {
                let _ = nodes.report_failure(Failure {
                    rank: None,
                    cause: Cause::Launcher,
                });
                self.leave();
                Ok(None)
            }
            Outcome::Failed { .. } | Outcome::PeerFailed { .. } => {
                if !nodes.restart_is_left() {
                    self.leave();
                }
                Ok(None)
            }
        }
    }
}

fn describe(round: &Round) -> Vec<String> {
    let Round {
        number,
        node_rank,
        num_nodes,
        base_rank,
        world_size,
        ..
    } = round;
    let places = round.hosts.iter().zip(&round.counts).enumerate();
    let places =
        places.map(|(node, (host, count))| format!("node {node} on {host}: processes: {count}"));
    let this = format!(
        "attempt {number}: this is node {node_rank} of {num_nodes}, its ranks begin at {base_rank} of \
         {world_size}"
    );
    places.chain([this]).collect()
}

fn cause(exit: Exit) -> Cause {
    match exit {
        Exit::Code(code) => Cause::Exit(code.into()),
        Exit::Signal(signal) => Cause::Signal(signal),
    }
}

/// Ends waits when the job is to end, as long as it lives.
struct InterruptWatch {
    _alive: mpsc::Sender<()>,
}

impl InterruptWatch {
    fn start(call: &Call, interrupt: Interrupt) -> Self {
        let (alive, gone) = mpsc::channel::<()>();
        let stop = call.stop.clone();
        thread::spawn(move || {
            while let Err(mpsc::RecvTimeoutError::Timeout) = gone.recv_timeout(LOOK) {
                if stop.reason().is_some() {
                    interrupt.set();
                }
            }
        });
        Self { _alive: alive }
    }
}

/// What a machine asks of the others is made from this.
pub(crate) struct Wish<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) strategy: Strategy,
    pub(crate) layout: &'a Layout,
    pub(crate) plan: &'a LaunchPlan,
    /// What `rdzv_conf` says.
    pub(crate) options: &'a Options,
}

/// What this machine wants of the others; `met_at` is where they meet if the settings do not say it.
///
/// # Errors
/// [`Error::MissingForMachines`] if something is not said that only the user knows, or an address
/// cannot be read; [`Error::UnevenByArrival`].
pub(crate) fn request(wish: &Wish<'_>, met_at: Option<Rendezvous>) -> Result<JoinRequest> {
    let Wish {
        settings,
        layout,
        plan,
        options,
        ..
    } = wish;
    let backend = settings.get(&RDZV_BACKEND).unwrap_or(RdzvBackend::Static);
    let missing = |what| Error::MissingForMachines {
        what,
        num_machines: layout.num_machines,
    };
    let backend = match backend {
        RdzvBackend::Static => Backend::Static {
            node_rank: layout
                .machine_rank
                .ok_or_else(|| missing(MACHINE_RANK.name()))?,
        },
        RdzvBackend::C10d => {
            even_by_arrival(settings, layout)?;
            Backend::C10d {
                is_host: options.is_host,
            }
        }
    };
    let (address, default_port) = met_at.map_or_else(
        || (None, Rendezvous::default().port),
        |met_at| (Some(met_at.addr), met_at.port),
    );
    let given = settings.get(&MAIN_PROCESS_IP);
    let address = given.filter(|text| !text.is_empty()).or(address);
    let address = address.ok_or_else(|| missing(MAIN_PROCESS_IP.name()))?;
    let port = settings.get(&MAIN_PROCESS_PORT).and_then(NonZeroU16::new);
    let endpoint = Endpoint::parse(&address, Some(port.unwrap_or(default_port)))?;
    Ok(JoinRequest {
        run_id: RUN_ID.to_owned(),
        timing: Timing::new(backend, options),
        backend,
        endpoint,
        num_nodes: layout.num_machines,
        max_restarts: plan.restarts.allowed,
        role: plan.role.name.clone(),
        host: host_name(),
        local_address: None,
        view: view(wish),
    })
}

/// Machines that get their numbers as they come do not know who of them has one process more.
fn even_by_arrival(settings: &Settings, layout: &Layout) -> Result<()> {
    let is_known =
        layout.machine_rank.is_some() || settings.given(&NUM_PROCESSES_PER_MACHINE).is_some();
    match layout.total {
        Some(total) if !is_known && total.get() % layout.num_machines != 0 => {
            Err(Error::UnevenByArrival {
                total,
                origin: settings.origin(&NUM_PROCESSES).clone(),
                num_machines: layout.num_machines,
            })
        }
        _ => Ok(()),
    }
}

/// What processes are told, but may be told differently on each machine.
static OF_ONE_MACHINE: [&str; 5] = [
    CPU_AFFINITY.name(),
    // Says which settings stand in a file; one machine may have flags for them.
    CONFIG_DS_FIELDS.name(),
    DEEPSPEED_CONFIG_FILE.name(),
    DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH.name(),
    DEEPSPEED_OFFLOAD_PARAM_NVME_PATH.name(),
];

/// What must be the same on all machines: the job, and everything that the settings tell its
/// processes.
fn view(wish: &Wish<'_>) -> NodeView {
    let Wish {
        settings,
        strategy,
        layout,
        plan,
        ..
    } = wish;
    let view = NodeView::default()
        .with("num_machines", layout.num_machines)
        .with("max_restarts", plan.restarts.allowed)
        .with("program", &plan.program.name)
        .with("strategy", strategy.in_one_word())
        .with("use_cpu", plan.cpu)
        .with("use_parallelism_config", uses_mesh(settings))
        .with("version", env!("CARGO_PKG_VERSION"));
    let view = match layout.total {
        Some(total) => view.with("num_processes", total),
        None => view,
    };
    let told = environment(settings, *strategy, plan.cpu, None);
    told.iter()
        .filter(|(variable, _)| !OF_ONE_MACHINE.contains(variable))
        .fold(view, |view, (variable, text)| {
            view.with_new(name_of(variable), text)
        })
}

/// The setting that a variable tells of, else the variable.
fn name_of(variable: &'static str) -> &'static str {
    let mut entries = TABLE.iter().map(|key| key.entry());
    let setting = entries.find(|entry| entry.variable == Some(variable));
    setting.map_or(variable, |entry| entry.name)
}

fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
