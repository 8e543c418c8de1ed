//! The attempts of a job on several machines: each begins where all launchers have met.

use std::{
    num::{NonZeroU16, NonZeroUsize},
    sync::mpsc,
    thread,
    time::Duration,
};

use accelerate_plan::{
    env::MIXED_PRECISION,
    launch::{LaunchPlan, Layout, Nodes as NodeCounts, Restarts, Role},
    settings::{
        MACHINE_RANK, MAIN_PROCESS_IP, MAIN_PROCESS_PORT, RDZV_BACKEND, RDZV_CONF, RdzvBackend,
        Settings,
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
    /// Whether the places of all machines are told.
    debug: bool,
}

impl Machines {
    /// A job whose ranks on this machine follow `plan`, as soon as the machines have met.
    pub(crate) fn new(plan: LaunchPlan, request: JoinRequest, debug: bool) -> Self {
        Self {
            debug,
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
        let mut tell = |waiting: &Waiting| report::note(&waiting.to_string(), &[]);
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
        if self.debug {
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
            Outcome::Success => match nodes.exit_barrier(EXIT_BARRIER) {
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
        places.map(|(node, (host, count))| format!("node {node} on {host}: {count} processes"));
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

/// What this machine wants of the others; `met_at` is where they meet if the settings do not say it.
///
/// # Errors
/// [`Error::MissingForMachines`] if something is not said that only the user knows, or an address
/// or detail cannot be read.
pub(crate) fn request(
    settings: &Settings,
    layout: &Layout,
    plan: &LaunchPlan,
    met_at: Option<Rendezvous>,
) -> Result<JoinRequest> {
    let backend = settings.get(&RDZV_BACKEND).unwrap_or(RdzvBackend::Static);
    let options = Options::parse(&settings.get(&RDZV_CONF).unwrap_or_default())?;
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
        RdzvBackend::C10d => Backend::C10d {
            is_host: options.is_host,
        },
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
        timing: Timing::new(backend, &options),
        backend,
        endpoint,
        num_nodes: layout.num_machines,
        max_restarts: plan.restarts.allowed,
        role: plan.role.name.clone(),
        host: host_name(),
        local_address: None,
        view: view(layout, plan),
    })
}

fn view(layout: &Layout, plan: &LaunchPlan) -> NodeView {
    let precision = plan.shared.get(MIXED_PRECISION.name()).unwrap_or_default();
    let view = NodeView::default()
        .with("num_machines", layout.num_machines)
        .with("max_restarts", plan.restarts.allowed)
        .with("program", &plan.program.name)
        .with("mixed_precision", precision)
        .with("version", env!("CARGO_PKG_VERSION"));
    match layout.total {
        Some(total) => view.with("num_processes", total),
        None => view,
    }
}

fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
