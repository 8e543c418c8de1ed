use std::{
    cell::RefCell,
    num::NonZeroUsize,
    sync::mpsc,
    time::{Duration, Instant, SystemTime},
};

use accelerate_plan::{
    env::EnvOverlay,
    launch::{Nodes, Restarts, Role, Threads},
    topology::Rendezvous,
};

use super::*;
use crate::{error::Error, launch::tree::Exit};

fn plan() -> LaunchPlan {
    let nodes = Nodes::one(NonZeroUsize::MIN);
    LaunchPlan {
        program: Program {
            name: "train".to_owned(),
            executable: "train".into(),
            arguments: Vec::new(),
        },
        role: Role::of_all("default", &nodes),
        nodes,
        rendezvous: Rendezvous::default(),
        cpu: true,
        shared: EnvOverlay::new(),
        threads: Threads::Inherited,
        store_is_served: false,
        run_id: "none".to_owned(),
        restarts: Restarts::default(),
    }
}

fn ended(attempt: usize, outcome: Outcome) -> Ended {
    Ended {
        attempt,
        started: SystemTime::UNIX_EPOCH,
        ended: SystemTime::UNIX_EPOCH,
        outcome,
        world_size: 1,
        ranks: Vec::new(),
        survivors: 0,
        memory_kills: 0,
    }
}

fn failure() -> Outcome {
    Outcome::Failed {
        index: 0,
        exit: Exit::Code(3),
    }
}

/// Other machines that do as they are told.
#[derive(Default)]
struct Others {
    log: RefCell<Vec<String>>,
    /// In which attempts another machine fails.
    failing: Vec<usize>,
    never_meet: bool,
}

impl Rounds for Others {
    fn next(&mut self, call: &Call) -> Result<LaunchPlan> {
        self.log.get_mut().push(format!("next {}", call.attempt));
        if self.never_meet {
            return Err(Error::PortTaken { port: 1 });
        }
        Ok(plan())
    }

    fn failed(&mut self, failure: FirstFailure) {
        self.log.get_mut().push(format!("failed {failure}"));
    }

    fn finish(&mut self, call: &Call, ended: &Ended) -> Result<Option<String>> {
        self.log.get_mut().push(format!("finish {}", ended.attempt));
        let failed = self.failing.contains(&call.attempt);
        Ok(failed.then(|| "rank 9: exit code 1".to_owned()))
    }
}

/// Runs attempts with these outcomes; the last one repeats.
fn run(
    rounds: &mut Others,
    max_restarts: usize,
    stop: &StopRequest,
    outcomes: &[Outcome],
) -> Result<Vec<Outcome>> {
    let handling = Handling {
        max_restarts,
        quiet: true,
        time_limit: Some(Duration::from_secs(7)),
        ..Handling::default()
    };
    let (sender, _events) = mpsc::channel();
    let looped = Loop {
        program: &plan().program,
        handling: &handling,
        rounds,
        stop: stop.clone(),
    };
    let history = looped.run(
        |attempt| Outside::new(attempt, sender.clone()),
        |_, number, failed| {
            let outcome = outcomes[number.min(outcomes.len() - 1)].clone();
            if let Outcome::Failed { exit, .. } = outcome {
                failed(FirstFailure { rank: 0, exit });
            }
            Ok(ended(number, outcome))
        },
    )?;
    Ok(history.into_iter().map(|ended| ended.outcome).collect())
}

#[test]
fn failures_are_followed_by_restarts_until_one_succeeds() {
    let stop = StopRequest::new(None);
    let mut rounds = Others::default();
    let outcomes = [failure(), failure(), Outcome::Success];
    assert_eq!(run(&mut rounds, 5, &stop, &outcomes).unwrap(), outcomes);
    assert_eq!(
        rounds.log.take(),
        [
            "next 0",
            "failed rank 0: exit code 3",
            "finish 0",
            "next 1",
            "failed rank 0: exit code 3",
            "finish 1",
            "next 2",
            "finish 2"
        ]
    );
}

#[test]
fn there_is_one_attempt_more_than_restarts() {
    let stop = StopRequest::new(None);
    for restarts in 0..3 {
        let history = run(&mut Others::default(), restarts, &stop, &[failure()]).unwrap();
        assert_eq!(history, vec![failure(); restarts + 1]);
    }
}

#[test]
fn another_machine_that_fails_is_a_reason_to_start_again() {
    let stop = StopRequest::new(None);
    let mut rounds = Others {
        failing: vec![0],
        ..Others::default()
    };
    let history = run(&mut rounds, 1, &stop, &[Outcome::Success]).unwrap();
    let description = "rank 9: exit code 1".to_owned();
    assert_eq!(
        history,
        [Outcome::PeerFailed { description }, Outcome::Success]
    );
}

#[test]
fn nobody_who_wants_an_end_gets_a_restart() {
    let stop = StopRequest::new(None);
    for outcome in [
        Outcome::Interrupted { signal: 15 },
        Outcome::TimedOut {
            limit: Duration::ZERO,
        },
    ] {
        let outcomes = [outcome.clone()];
        assert_eq!(
            run(&mut Others::default(), 9, &stop, &outcomes).unwrap(),
            outcomes
        );
    }
    stop.signal_arrived(2);
    assert_eq!(
        run(&mut Others::default(), 9, &stop, &[failure()]).unwrap(),
        [failure()]
    );
}

#[test]
fn waiting_for_others_ends_with_a_reason() {
    let mut rounds = Others {
        never_meet: true,
        ..Others::default()
    };
    let stop = StopRequest::new(None);
    let error = run(&mut rounds, 0, &stop, &[Outcome::Success]).unwrap_err();
    assert!(matches!(error, Error::PortTaken { .. }), "{error}");
    stop.signal_arrived(15);
    assert_eq!(
        run(&mut rounds, 0, &stop, &[Outcome::Success]).unwrap(),
        [Outcome::Interrupted { signal: 15 }]
    );
    let stop = StopRequest::new(Some(Instant::now()));
    let limit = Duration::from_secs(7);
    assert_eq!(
        run(&mut rounds, 0, &stop, &[Outcome::Success]).unwrap(),
        [Outcome::TimedOut { limit }]
    );
}

#[test]
fn each_attempt_has_its_own_port_unless_the_user_chose_one() {
    let ports = |port_is_given| {
        let reservation = Reservation::new(0).unwrap();
        let mut plan = plan();
        plan.rendezvous.port = reservation.port();
        let mut rounds = OneMachine::new(plan, Some(reservation), port_is_given);
        let (sender, _events) = mpsc::channel();
        [0, 1].map(|attempt| {
            let call = Call {
                attempt,
                stop: StopRequest::new(None),
                outside: Outside::new(attempt, sender.clone()),
            };
            rounds.next(&call).unwrap().rendezvous.port
        })
    };
    let [first, second] = ports(false);
    assert_ne!(first, second);
    let [first, second] = ports(true);
    assert_eq!(first, second);
}
