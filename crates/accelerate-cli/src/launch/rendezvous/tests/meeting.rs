//! How nodes find each other, and what keeps them apart.

use super::*;

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
