//! Nodes that end, vanish or fall silent.

use super::*;

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
