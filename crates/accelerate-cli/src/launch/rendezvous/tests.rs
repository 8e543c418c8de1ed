//! Several nodes as threads of one process.

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

#[test]
fn nodes_with_unequal_counts_get_their_ranks_and_leave_together() {
    let port = free_port();
    let requests = vec![
        (ranked(1, port, 3), 2),
        (ranked(2, port, 3), 3),
        (ranked(0, port, 3), 1),
    ];
    let all = together(requests.into_iter().map(|(request, processes)| {
        Box::new(move || {
            let (mut nodes, round) = enter(request, processes).unwrap();
            assert_eq!(round.counts, [1, 2, 3]);
            assert_eq!(round.hosts, ["host0", "host1", "host2"]);
            assert_eq!((round.number, round.num_nodes), (0, 3));
            assert_eq!(round.reservation.is_some(), round.node_rank == 0);
            assert_eq!(nodes.exit_barrier(LONG), Barrier::Passed);
            nodes.leave();
            round
        }) as Box<dyn FnOnce() -> Round + Send>
    }));
    let places = |round: &Round| (round.node_rank, round.base_rank, round.world_size);
    let all_places: Vec<_> = all.iter().map(places).collect();
    assert_eq!(all_places, [(1, 1, 6), (2, 3, 6), (0, 0, 6)]);
    let MeetingPoint {
        address,
        port: meeting_port,
        served_by_launcher,
    } = all[0].meeting_point.clone();
    assert_eq!((address.as_str(), served_by_launcher), ("127.0.0.1", false));
    assert_ne!(meeting_port, port.get());
    assert!(
        all.iter()
            .all(|round| round.meeting_point == all[0].meeting_point)
    );
}

#[test]
fn a_hundred_nodes() {
    let port = free_port();
    let requests = (0..100).map(|rank| (ranked(rank, port, 100), 8));
    let all = together(entering(requests.collect()));
    let mut nodes: Vec<_> = all.into_iter().map(|entered| entered.unwrap().0).collect();
    nodes[50].report_failure(failed(3)).unwrap();
    for (rank, node) in nodes.iter().enumerate().filter(|(rank, _)| *rank != 50) {
        let told = event(node);
        assert!(
            matches!(told, PeerEvent::Failed { node: 50, .. }),
            "{rank}: {told:?}"
        );
    }
    nodes.into_iter().for_each(Nodes::leave);
}

#[test]
fn contradictory_views_fail_everywhere_with_the_same_words() {
    let port = free_port();
    let mut second = ranked(1, port, 3);
    second.view = second.view.with("mixed_precision", "fp16");
    let mut first = ranked(0, port, 2);
    first.view = first.view.with("mixed_precision", "bf16");
    let errors: Vec<_> = together(entering(vec![(first, 1), (second, 1)]))
        .into_iter()
        .map(|entered| entered.unwrap_err().to_string())
        .collect();
    assert_eq!(errors[0], errors[1]);
    for part in [
        "`num_machines` is 2 on node 0 (host0), 3 on node 1 (host1)",
        "bf16",
        "fp16",
    ] {
        assert!(errors[0].contains(part), "{}", errors[0]);
    }
}

#[test]
fn processes_that_do_not_add_up_are_refused_everywhere() {
    let port = free_port();
    let request = |rank| {
        let mut request = ranked(rank, port, 2);
        request.view = request.view.with("num_processes", 4);
        request
    };
    for entered in together(entering(vec![(request(0), 1), (request(1), 2)])) {
        let Err(Error::Disagreement { conflicts }) = entered else {
            panic!("{entered:?}");
        };
        assert_eq!(
            conflicts,
            [Conflict::Total {
                expected: 4,
                found: vec![1, 2]
            }]
        );
    }
}

#[test]
fn two_nodes_with_one_number_are_named() {
    let port = free_port();
    let twin = |host: &str| {
        let backend = Backend::Static { node_rank: 1 };
        (request(backend, port, 3, host), 1)
    };
    let all = together(entering(vec![
        (ranked(0, port, 3), 1),
        twin("left"),
        twin("right"),
    ]));
    for entered in all {
        let text = entered.unwrap_err().to_string();
        assert!(text.contains("`machine_rank` 1 is given to"), "{text}");
        assert!(text.contains("left") && text.contains("right"), "{text}");
    }
}

#[test]
fn a_second_node_0_is_one_too_many() {
    let port = free_port();
    let interrupt = Interrupt::default();
    let first = {
        let interrupt = interrupt.clone();
        let mut request = ranked(0, port, 2);
        request.timing.first_report = Duration::ZERO;
        let (sender, up) = mpsc::channel();
        let thread = thread::spawn(move || {
            enter_with(request, 1, &interrupt, &mut |_| {
                let _ = sender.send(());
            })
        });
        up.recv_timeout(LONG).unwrap();
        thread
    };
    let second = enter(
        request(Backend::Static { node_rank: 0 }, port, 2, "other"),
        1,
    );
    let errors = [first.join().unwrap().unwrap_err(), second.unwrap_err()];
    for error in errors {
        let text = error.to_string();
        assert!(
            text.contains("`machine_rank` 0 is given to host0 and other"),
            "{text}"
        );
    }
}

#[test]
fn a_late_twin_is_turned_away_and_the_job_goes_on() {
    let port = free_port();
    let all = together(entering(vec![
        (ranked(0, port, 2), 1),
        (ranked(1, port, 2), 1),
    ]));
    let nodes: Vec<_> = all.into_iter().map(|entered| entered.unwrap().0).collect();
    let error = enter(
        request(Backend::Static { node_rank: 1 }, port, 2, "late"),
        1,
    );
    let text = error.unwrap_err().to_string();
    assert!(text.contains("`machine_rank` 1 is that of host1"), "{text}");
    assert!(nodes.iter().all(|node| node.event().is_none()));
    nodes.into_iter().for_each(Nodes::leave);
}

#[test]
fn who_waits_is_told_who_is_missing_and_gives_up_with_all_others() {
    let port = free_port();
    let waiting = |rank| {
        let mut request = ranked(rank, port, 3);
        // Only node 0 gives up by itself.
        request.timing.join = if rank == 0 {
            Duration::from_millis(900)
        } else {
            LONG
        };
        request.timing.first_report = Duration::from_millis(300);
        Box::new(move || {
            let mut told = Vec::new();
            let mut tell = |waiting: &Waiting| told.push(waiting.clone());
            let error = enter_with(request, 1, &Interrupt::default(), &mut tell).unwrap_err();
            (error.to_string(), told)
        }) as Box<dyn FnOnce() -> (String, Vec<Waiting>) + Send>
    };
    for (error, told) in together([waiting(0), waiting(2)]) {
        for part in [
            &format!("127.0.0.1:{port}"),
            "2 of 3",
            "joined node 0 (host0), node 2 (host2)",
            "missing node 1",
        ] {
            assert!(error.contains(part), "{error}");
        }
        let gathering = told.iter().find(|waiting| {
            matches!(&waiting.state, State::Gathering { joined, .. } if joined.len() == 2)
        });
        let text = gathering.unwrap().to_string();
        assert!(text.contains("missing: node 1"), "{text}");
        assert_eq!(told.len(), 1, "{told:?}");
    }
}

#[test]
fn without_node_0_the_address_is_named() {
    let mut request = ranked(1, free_port(), 2);
    request.timing.join = Duration::from_millis(150);
    request.timing.first_report = Duration::from_millis(20);
    let address = request.endpoint.to_string();
    let mut told = Vec::new();
    let mut tell = |waiting: &Waiting| told.push(waiting.to_string());
    let error = enter_with(request, 1, &Interrupt::default(), &mut tell).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(&address), "{error}");
    assert!(
        told[0].contains(&address) && told[0].contains("refused"),
        "{told:?}"
    );
}

#[test]
fn a_port_that_is_in_use_is_an_error_at_once() {
    // Something silent, and a store that is no launcher's.
    let silent = listen(0).unwrap();
    let foreign = StoreServer::start(listen(0).unwrap(), None, Vec::new()).unwrap();
    for port in [silent.local_addr().unwrap().port(), foreign.port()] {
        let request = ranked(0, NonZeroU16::new(port).unwrap(), 2);
        let error = enter(request, 1).unwrap_err();
        assert!(
            matches!(error, Error::PortBusy { port: busy, .. } if busy == port),
            "{error:?}"
        );
    }
}

#[test]
fn an_interrupt_ends_every_wait() {
    let port = free_port();
    // One waits for other nodes, the other for a store.
    for request in [ranked(0, port, 2), ranked(1, free_port(), 2)] {
        let interrupt = Interrupt::default();
        let mut request = request;
        request.timing.first_report = Duration::ZERO;
        let (sender, waits) = mpsc::channel();
        let waiting = {
            let interrupt = interrupt.clone();
            thread::spawn(move || {
                enter_with(request, 1, &interrupt, &mut |_| {
                    let _ = sender.send(());
                })
            })
        };
        waits.recv_timeout(LONG).unwrap();
        interrupt.set();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Interrupted), "{error:?}");
    }
}

/// Number, node and port of each round.
type Rounds = Vec<(usize, usize, u16)>;

/// One node of a job that succeeds in its third attempt.
fn third_time(request: JoinRequest, fails: bool) -> Rounds {
    let mut nodes = Nodes::join(request, &Interrupt::default(), &mut |_| {}).unwrap();
    let mut rounds = Vec::new();
    loop {
        let round = nodes.next_round(one(), &mut |_| {}).unwrap();
        rounds.push((round.number, round.node_rank, round.meeting_point.port));
        if round.number == 2 {
            assert!(!nodes.restart_is_left());
            assert_eq!(nodes.exit_barrier(LONG), Barrier::Passed);
            nodes.leave();
            return rounds;
        }
        assert!(nodes.restart_is_left());
        if fails {
            nodes.report_failure(failed(7)).unwrap();
        } else {
            let event = event(&nodes);
            assert!(event.allows_restart());
            let PeerEvent::Failed { failure, .. } = event else {
                panic!("{event:?}");
            };
            assert_eq!(failure, failed(7));
        }
    }
}

fn two_restarts(requests: Vec<JoinRequest>) {
    let last = requests.len() - 1;
    let all = together(requests.into_iter().enumerate().map(|(index, request)| {
        Box::new(move || third_time(request, index == last)) as Box<dyn FnOnce() -> Rounds + Send>
    }));
    for rounds in &all {
        let numbers: Vec<_> = rounds.iter().map(|(number, ..)| *number).collect();
        assert_eq!(numbers, [0, 1, 2]);
        // Each node keeps its number, and all meet at one port.
        assert!(rounds.iter().all(|(_, node, _)| *node == rounds[0].1));
        let ports =
            |rounds: &[(usize, usize, u16)]| rounds.iter().map(|at| at.2).collect::<Vec<_>>();
        assert_eq!(ports(rounds), ports(&all[0]));
    }
}

#[test]
fn two_restarts_then_success_with_given_numbers() {
    let port = free_port();
    two_restarts((0..3).map(|rank| ranked(rank, port, 3)).collect());
}

#[test]
fn two_restarts_then_success_with_numbers_by_arrival() {
    let port = free_port();
    two_restarts(vec![arriving("a", port, 2), arriving("b", port, 2)]);
}

#[test]
fn the_first_failure_counts_and_there_are_no_more_attempts_than_allowed() {
    let port = free_port();
    let request = |rank| {
        let mut request = ranked(rank, port, 2);
        request.max_restarts = 0;
        (request, 1)
    };
    let all = together(entering(vec![request(0), request(1)]));
    let mut nodes: Vec<_> = all.into_iter().map(|entered| entered.unwrap().0).collect();
    nodes[1].report_failure(failed(3)).unwrap();
    nodes[0].report_failure(failed(4)).unwrap();
    let told = event(&nodes[0]);
    let expected = PeerEvent::Failed {
        node: 1,
        host: "host1".to_owned(),
        failure: failed(3),
    };
    assert_eq!(told, expected);
    let error = nodes[0].next_round(one(), &mut |_| {}).unwrap_err();
    assert!(
        matches!(error, Error::NoRestartLeft { restarts: 0, .. }),
        "{error:?}"
    );
    nodes.into_iter().for_each(Nodes::leave);
}

#[test]
fn a_node_that_is_told_to_end_ends_the_job() {
    let port = free_port();
    let all = together(entering(vec![
        (ranked(0, port, 2), 1),
        (ranked(1, port, 2), 1),
    ]));
    let mut nodes: Vec<_> = all.into_iter().map(|entered| entered.unwrap().0).collect();
    let stopped = Failure {
        rank: None,
        cause: Cause::Stopped(15),
    };
    nodes[0].report_failure(stopped).unwrap();
    assert!(!event(&nodes[1]).allows_restart());
    let error = nodes[1].next_round(one(), &mut |_| {}).unwrap_err();
    assert!(
        error.to_string().contains("node 0 (host0) was told to end"),
        "{error}"
    );
    nodes.into_iter().for_each(Nodes::leave);
}

#[test]
fn a_node_that_vanishes_is_missed_and_another_takes_its_place() {
    let port = free_port();
    let all = together(entering(vec![
        (ranked(0, port, 2), 1),
        (ranked(1, port, 2), 1),
    ]));
    let mut nodes: Vec<_> = all.into_iter().map(|entered| entered.unwrap().0).collect();
    drop(nodes.pop());
    let lost = PeerEvent::Lost {
        node: 1,
        host: "host1".to_owned(),
    };
    assert_eq!(event(&nodes[0]), lost);
    let next = thread::spawn(move || enter(ranked(1, port, 2), 1));
    let round = nodes[0].next_round(one(), &mut |_| {}).unwrap();
    let (other, others_round) = next.join().unwrap().unwrap();
    assert_eq!((round.number, others_round.number), (1, 1));
    other.leave();
    nodes.into_iter().for_each(Nodes::leave);
}

#[test]
fn a_node_without_a_sign_of_life_is_lost() {
    let port = free_port();
    let request = |rank| {
        let mut request = ranked(rank, port, 2);
        request.timing.beat = Duration::from_millis(50);
        request.timing.linger = Duration::ZERO;
        (request, 1)
    };
    let all = together(entering(vec![request(0), request(1)]));
    let mut nodes: Vec<_> = all.into_iter().map(|entered| entered.unwrap().0).collect();
    // As if its machine was frozen: connected, but silent.
    nodes[1].watcher = None;
    assert!(matches!(event(&nodes[0]), PeerEvent::Lost { node: 1, .. }));
    nodes.into_iter().for_each(Nodes::leave);
}

#[test]
fn the_end_of_the_node_with_the_store_is_noticed() {
    let port = free_port();
    let all = together(entering(vec![
        (ranked(0, port, 2), 1),
        (ranked(1, port, 2), 1),
    ]));
    let mut nodes: Vec<_> = all.into_iter().map(|entered| entered.unwrap().0).collect();
    drop(nodes.remove(0));
    let told = event(&nodes[0]);
    assert!(matches!(told, PeerEvent::StoreLost { .. }), "{told:?}");
    assert!(matches!(
        nodes[0].report_failure(failed(1)),
        Err(Error::Store { .. })
    ));
}

#[test]
fn the_barrier_at_the_end_has_a_limit_and_an_interrupt_and_breaks() {
    let port = free_port();
    let interrupt = Interrupt::default();
    let second = thread::spawn(move || enter(ranked(1, port, 2), 1));
    let (mut first, _) = enter_with(ranked(0, port, 2), 1, &interrupt, &mut |_| {}).unwrap();
    let (mut second, _) = second.join().unwrap().unwrap();
    assert_eq!(
        first.exit_barrier(Duration::from_millis(30)),
        Barrier::TimedOut
    );
    interrupt.set();
    let started = Instant::now();
    assert_eq!(first.exit_barrier(LONG), Barrier::Interrupted);
    assert!(started.elapsed() < LONG / 2);
    // It has succeeded and leaves: that is no failure for the other.
    first.leave();
    assert_eq!(event(&second), PeerEvent::Unwatched);
    assert_eq!(second.exit_barrier(LONG), Barrier::Passed);
}

#[test]
fn success_here_does_not_hide_a_failure_there() {
    let port = free_port();
    let all = together(entering(vec![
        (ranked(0, port, 2), 1),
        (ranked(1, port, 2), 1),
    ]));
    let mut nodes: Vec<_> = all.into_iter().map(|entered| entered.unwrap().0).collect();
    nodes[1].report_failure(failed(9)).unwrap();
    let barrier = nodes[0].exit_barrier(LONG);
    assert!(
        matches!(&barrier, Barrier::Broken(PeerEvent::Failed { node: 1, .. })),
        "{barrier:?}"
    );
    nodes.into_iter().for_each(Nodes::leave);
}

#[test]
fn by_arrival_the_node_with_the_store_is_first_and_one_too_many_waits() {
    let port = free_port();
    let all = together(entering(vec![
        (arriving("a", port, 2), 1),
        (arriving("b", port, 2), 2),
    ]));
    let (mut nodes, rounds): (Vec<_>, Vec<_>) = all.into_iter().map(Result::unwrap).unzip();
    let holder = nodes.iter().position(|node| node.server.is_some()).unwrap();
    assert_eq!(rounds[holder].node_rank, 0);
    assert_eq!(rounds[0].world_size, 3);
    let mut third = arriving("c", port, 2);
    third.timing.first_report = Duration::ZERO;
    let (sender, waits) = mpsc::channel();
    let third = thread::spawn(move || {
        enter_with(third, 1, &Interrupt::default(), &mut |waiting| {
            if matches!(waiting.state, State::Full { .. }) {
                let _ = sender.send(());
            }
        })
    });
    waits.recv_timeout(LONG).unwrap();
    // The node without the store makes room.
    drop(nodes.remove(1 - holder));
    assert!(matches!(event(&nodes[0]), PeerEvent::Lost { .. }));
    let round = nodes[0].next_round(one(), &mut |_| {}).unwrap();
    assert_eq!((round.number, round.hosts[1].as_str()), (1, "c"));
    let (third, _) = third.join().unwrap().unwrap();
    third.leave();
    nodes.into_iter().for_each(Nodes::leave);
}

#[test]
fn the_end_of_node_0_before_the_start_is_told_to_the_others() {
    let port = free_port();
    let interrupt = Interrupt::default();
    let second = thread::spawn(move || enter(ranked(1, port, 3), 1));
    let mut request = ranked(0, port, 3);
    request.timing.first_report = Duration::ZERO;
    request.timing.next_report = Duration::ZERO;
    let at_two = interrupt.clone();
    let first = enter_with(request, 1, &interrupt, &mut |waiting| {
        if matches!(&waiting.state, State::Gathering { joined, .. } if joined.len() == 2) {
            at_two.set();
        }
    });
    assert!(matches!(first, Err(Error::Interrupted)), "{first:?}");
    let text = second.join().unwrap().unwrap_err().to_string();
    assert!(text.contains("node 0 (host0) was told to end"), "{text}");
}

#[test]
fn a_node_that_goes_away_while_it_waits_makes_room() {
    let port = free_port();
    let interrupt = Interrupt::default();
    let mut leaving = ranked(1, port, 2);
    leaving.num_nodes = NonZeroUsize::new(3).unwrap();
    leaving.view = NodeView::default().with("num_machines", 3);
    let first = thread::spawn(move || enter(ranked(0, port, 3), 1));
    leaving.timing.first_report = Duration::ZERO;
    let end = interrupt.clone();
    let left = enter_with(leaving, 1, &interrupt, &mut |waiting| {
        if matches!(waiting.state, State::Gathering { .. }) {
            end.set();
        }
    });
    assert!(matches!(left, Err(Error::Interrupted)), "{left:?}");
    let rest = together(entering(vec![
        (ranked(1, port, 3), 2),
        (ranked(2, port, 3), 1),
    ]));
    let mut nodes = vec![first.join().unwrap().unwrap()];
    nodes.extend(rest.into_iter().map(Result::unwrap));
    assert!(nodes.iter().all(|(_, round)| round.world_size == 4));
    nodes.into_iter().for_each(|(node, _)| node.leave());
}

/// Passes bytes on in both directions, from a port of its own to `to`, until it is frozen.
fn line_to(to: NonZeroU16, frozen: &Interrupt) -> NonZeroU16 {
    let listener = listen(0).unwrap();
    let port = listener.local_addr().unwrap().port();
    let frozen = frozen.clone();
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = TcpStream::connect(("127.0.0.1", to.get())) else {
                // Nobody listens yet: who called tries again.
                continue;
            };
            for (mut from, mut to) in [
                (near.try_clone().unwrap(), far.try_clone().unwrap()),
                (far, near),
            ] {
                let frozen = frozen.clone();
                thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(length @ 1..) = from.read(&mut bytes) {
                        while frozen.is_set() {
                            thread::park();
                        }
                        let _ = to.write_all(&bytes[..length]);
                    }
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    NonZeroU16::new(port).unwrap()
}

#[test]
fn a_store_that_does_not_answer_any_more_is_noticed_on_both_sides() {
    let port = free_port();
    let frozen = Interrupt::default();
    let request = |rank, port| {
        let mut request = ranked(rank, port, 2);
        request.timing.beat = Duration::from_millis(250);
        request.timing.linger = Duration::ZERO;
        (request, 1)
    };
    let far = line_to(port, &frozen);
    let all = together(entering(vec![request(0, port), request(1, far)]));
    let nodes: Vec<_> = all.into_iter().map(|entered| entered.unwrap().0).collect();
    frozen.set();
    assert!(matches!(event(&nodes[1]), PeerEvent::StoreLost { .. }));
    assert!(matches!(event(&nodes[0]), PeerEvent::Lost { node: 1, .. }));
}
