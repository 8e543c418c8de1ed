//! Several nodes as threads of one process.

mod attempts;
mod losses;
mod meeting;
mod python;

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    num::{NonZeroU16, NonZeroUsize},
    process,
    sync::{
        atomic::{AtomicU16, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::round::MeetingPoint;
use super::{
    Backend, Barrier, Cause, Endpoint, Error, Failure, Interrupt, JoinRequest, NodeView, Nodes,
    Options, PeerEvent, Result, Round, State, Timing, Waiting,
    agreement::Conflict,
    store::server::{StoreServer, listen},
};

/// Long enough for a busy machine; no test that passes waits for it.
const LONG: Duration = Duration::from_secs(30);

fn one() -> NonZeroUsize {
    NonZeroUsize::MIN
}

/// A port that nobody listens on, and that no connection gets by chance.
fn free_port() -> NonZeroU16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = 10_000 + u16::try_from(process::id() * 101 % 20_000).unwrap();
    loop {
        let port = start + NEXT.fetch_add(1, Ordering::Relaxed) % 2_000;
        if listen(port).is_ok() {
            return NonZeroU16::new(port).unwrap();
        }
    }
}

fn request(backend: Backend, port: NonZeroU16, num_nodes: usize, host: &str) -> JoinRequest {
    JoinRequest {
        run_id: "none".to_owned(),
        backend,
        endpoint: Endpoint {
            host: "127.0.0.1".to_owned(),
            port,
        },
        num_nodes: NonZeroUsize::new(num_nodes).unwrap(),
        max_restarts: 2,
        role: "default".to_owned(),
        host: host.to_owned(),
        local_address: None,
        view: NodeView::default().with("num_machines", num_nodes),
        timing: Timing {
            join: LONG,
            ..Timing::new(backend, &Options::default())
        },
    }
}

/// The request of a node by its `machine_rank`.
fn ranked(rank: usize, port: NonZeroU16, num_nodes: usize) -> JoinRequest {
    let backend = Backend::Static { node_rank: rank };
    request(backend, port, num_nodes, &format!("host{rank}"))
}

fn arriving(name: &str, port: NonZeroU16, num_nodes: usize) -> JoinRequest {
    request(Backend::C10d { is_host: None }, port, num_nodes, name)
}

/// Joins and comes to the first round.
fn enter(request: JoinRequest, processes: usize) -> Result<(Nodes, Round)> {
    enter_with(request, processes, &Interrupt::default(), &mut |_| {})
}

fn enter_with(
    request: JoinRequest,
    processes: usize,
    interrupt: &Interrupt,
    tell: &mut dyn FnMut(&Waiting),
) -> Result<(Nodes, Round)> {
    let mut nodes = Nodes::join(request, interrupt, tell)?;
    let round = nodes.next_round(NonZeroUsize::new(processes).unwrap(), tell)?;
    Ok((nodes, round))
}

/// Runs each node on a thread, and all to their end.
fn together<T: Send + 'static>(
    nodes: impl IntoIterator<Item = Box<dyn FnOnce() -> T + Send>>,
) -> Vec<T> {
    let threads: Vec<JoinHandle<T>> = nodes.into_iter().map(thread::spawn).collect();
    threads
        .into_iter()
        .map(|node| node.join().unwrap())
        .collect()
}

fn entering(
    requests: Vec<(JoinRequest, usize)>,
) -> impl Iterator<Item = Box<dyn FnOnce() -> Result<(Nodes, Round)> + Send>> {
    requests.into_iter().map(|(request, processes)| {
        Box::new(move || enter(request, processes)) as Box<dyn FnOnce() -> _ + Send>
    })
}

fn failed(code: i32) -> Failure {
    Failure {
        rank: Some(1),
        cause: Cause::Exit(code),
    }
}

/// The next event of a node.
fn event(nodes: &Nodes) -> PeerEvent {
    let (sender, events) = mpsc::channel();
    nodes.subscribe(move |event| sender.send(event).unwrap());
    events.recv_timeout(LONG).unwrap()
}
