//! Restarts after a failure.

use super::*;

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
