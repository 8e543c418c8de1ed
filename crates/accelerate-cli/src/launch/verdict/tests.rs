use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use serde_json::json;

use super::*;
use crate::launch::{error_file::Reported, start::End};

fn program() -> Program {
    Program {
        name: "train".to_owned(),
        executable: "/opt/bin/train".into(),
        arguments: Vec::new(),
    }
}

fn rank(rank: usize, exit: Exit) -> RankEnd {
    RankEnd {
        rank,
        local_rank: rank,
        pid: None,
        end: Some(End {
            exit,
            at: SystemTime::UNIX_EPOCH,
            by_launcher: exit == Exit::Signal(15),
        }),
        last_lines: Vec::new(),
        stderr_log: None,
        reported: None,
        activity: None,
    }
}

fn ended(outcome: Outcome, ranks: Vec<RankEnd>) -> Ended {
    Ended {
        attempt: 0,
        started: SystemTime::UNIX_EPOCH,
        ended: SystemTime::UNIX_EPOCH,
        outcome,
        world_size: ranks.len(),
        ranks,
        survivors: 0,
        memory_kills: 0,
    }
}

fn failed(index: usize, ranks: Vec<RankEnd>) -> Ended {
    let exit = ranks[index].end.unwrap().exit;
    ended(Outcome::Failed { index, exit }, ranks)
}

#[test]
fn success_is_silent() {
    let ranks = vec![rank(0, Exit::Code(0)), rank(1, Exit::Code(0))];
    let ended = ended(Outcome::Success, ranks);
    assert_eq!(describe(&ended, &program(), true), "");
    assert_eq!(ended.exit_code(), 0);
}

#[test]
fn a_failure_names_rank_code_and_last_lines() {
    let mut ranks = vec![rank(0, Exit::Signal(15)), rank(1, Exit::Code(7))];
    ranks[1].last_lines = vec!["first".to_owned(), "second".to_owned()];
    ranks[1].stderr_log = Some(PathBuf::from("logs/1/stderr.log"));
    let ended = failed(1, ranks);
    assert_eq!(
        describe(&ended, &program(), false),
        "error: `train` failed on rank 1 of 2\n  caused by: exit code 7\n  \
         last lines of rank 1 on stderr:\n    first\n    second\n  \
         its whole stderr is in `logs/1/stderr.log`\n"
    );
    assert_eq!(ended.exit_code(), 7);
    let text = describe(&ended, &program(), true);
    assert!(
        text.ends_with("  other ranks:\n    rank 0: ended by the launcher (SIGTERM)\n"),
        "{text}"
    );
}

#[test]
fn a_rank_that_did_not_follow_is_told_with_the_one_that_left() {
    let ranks = vec![rank(0, Exit::Code(LEFT_EARLY)), rank(1, Exit::Signal(15))];
    let mut ended = failed(1, ranks);
    let text = describe(&ended, &program(), false);
    assert!(
        text.contains("caused by: rank 0 had saved and left with exit code 75"),
        "{text}"
    );
    assert!(text.contains("hint: every rank has to leave"), "{text}");
    // One that failed by itself is a cause.
    ended.ranks[1] = rank(1, Exit::Code(3));
    ended.outcome = Outcome::Failed {
        index: 1,
        exit: Exit::Code(3),
    };
    let text = describe(&ended, &program(), false);
    assert!(text.contains("caused by: exit code 3"), "{text}");
}

#[test]
fn a_kill_has_the_name_of_its_signal_and_a_hint() {
    let text = describe(&failed(0, vec![rank(0, Exit::Signal(9))]), &program(), true);
    assert!(
        text.starts_with("error: `train` failed\n  caused by: killed by SIGKILL (exit code 137)\n")
    );
    assert!(
        text.contains("\nhint: ") && text.contains("memory"),
        "{text}"
    );
}

#[test]
fn a_kill_while_memory_ran_out_is_explained() {
    let mut ended = failed(0, vec![rank(0, Exit::Signal(9))]);
    ended.memory_kills = 2;
    let text = describe(&ended, &program(), false);
    assert!(
        text.contains("hint: memory ran out: the system killed 2 processes"),
        "{text}"
    );
    ended.memory_kills = 0;
    ended.outcome = Outcome::Success;
    assert_eq!(describe(&ended, &program(), false), "");
}

#[test]
fn some_ends_have_a_hint_and_others_none() {
    for (exit, word) in [
        (Exit::Signal(SIGBUS), "/dev/shm"),
        (Exit::Signal(SIGILL), "processor"),
        (Exit::Signal(SIGSEGV), "PYTHONFAULTHANDLER"),
        (Exit::Signal(SIGABRT), "last lines"),
        (Exit::Code(127), "not found"),
        (Exit::Code(126), "permissions"),
    ] {
        assert!(hint_for(exit).unwrap().contains(word), "{exit}");
    }
    assert_eq!(hint_for(Exit::Code(1)), None);
}

#[test]
fn what_the_program_says_is_a_cause() {
    let mut ranks = vec![rank(0, Exit::Code(1))];
    ranks[0].reported = Some(Reported {
        message: "ValueError: bad\nsecond".to_owned(),
        timestamp: None,
        content: json!({"message": {"extraInfo": {"py_callstack": "Traceback\n  line 1\n"}}}),
    });
    assert_eq!(
        describe(&failed(0, ranks), &program(), false),
        "error: `train` failed\n  caused by: exit code 1\n  caused by: ValueError: bad\n  \
         stack that rank 0 reported:\n    Traceback\n      line 1\n"
    );
}

#[test]
fn restarts_are_counted() {
    let mut last = failed(1, vec![rank(0, Exit::Code(0)), rank(1, Exit::Code(3))]);
    assert_eq!(
        describe_restart(&last, &program(), 1, 2),
        "note: `train` failed on rank 1 of 2; restart 1 of 2\n  caused by: exit code 3\n"
    );
    last.attempt = 2;
    let text = describe(&last, &program(), false);
    assert!(
        text.starts_with("error: `train` failed on rank 1 of 2, after 2 restarts\n"),
        "{text}"
    );
}

#[test]
fn other_reasons_are_told_too() {
    let text = |outcome| {
        describe(
            &ended(outcome, vec![rank(0, Exit::Code(0))]),
            &program(),
            false,
        )
    };
    assert_eq!(
        text(Outcome::Interrupted { signal: 15 }),
        "error: `train` was ended by SIGTERM\n"
    );
    let limit = Duration::from_millis(1500);
    assert!(
        text(Outcome::TimedOut { limit }).starts_with("error: `train` did not end within 1.5 s\n")
    );
    let description = "rank 3: exit code 1".to_owned();
    assert_eq!(
        text(Outcome::PeerFailed { description }),
        "error: `train` failed on another machine\n  caused by: rank 3: exit code 1\n"
    );
}

#[test]
fn an_end_before_the_machines_have_met_is_told_as_that() {
    let said = |outcome| describe(&ended(outcome, Vec::new()), &program(), false);
    assert_eq!(
        said(Outcome::Interrupted { signal: 15 }),
        "error: stopped by SIGTERM while waiting for the other machines\n"
    );
    let limit = Duration::from_secs(3);
    assert!(
        said(Outcome::TimedOut { limit })
            .starts_with("error: stopped after 3 s while waiting for the other machines\n")
    );
}
