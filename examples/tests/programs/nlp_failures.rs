//! Ranks that never meet, ranks that die: told soon, and nothing goes on.
#![cfg(target_os = "linux")]

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::process::{Program, kill, rank_among, wait_until, with_argument};
use crate::workplace::{Workplace, free_port, nlp};

/// A rank started by hand.
fn rank(place: &Workplace, rank: usize, world: usize, port: u16) -> Program {
    place
        .nlp()
        .env("RANK", rank.to_string())
        .env("LOCAL_RANK", rank.to_string())
        .env("WORLD_SIZE", world.to_string())
        .env("LOCAL_WORLD_SIZE", world.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string())
}

#[track_caller]
fn assert_nothing_runs(place: &Workplace) {
    let left = with_argument(place.path("").to_str().unwrap());
    assert!(left.is_empty(), "processes left behind: {left:?}");
}

#[test]
fn a_port_in_use_is_named_at_once() {
    let place = Workplace::new();
    let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = server.local_addr().unwrap().port();
    let done = place
        .launch_nlp(2, &["--main_process_port", &port.to_string()])
        .run();
    done.assert_code(1);
    done.assert_told(&[&format!("port {port} is in use"), "--main_process_port"]);
    assert_eq!(done.stdout, "");

    let done = rank(&place, 0, 2, port).run();
    done.assert_code(1);
    done.assert_told(&[&format!("127.0.0.1:{port}"), "MASTER_PORT"]);
    assert_nothing_runs(&place);
}

#[test]
fn a_rank_that_never_comes_is_named_after_ten_seconds() {
    let place = Workplace::new();
    let port = free_port();
    let running = rank(&place, 0, 2, port).start();
    let line = running.wait_for_stderr("waiting for");
    for told in [
        "1 of 2 ranks",
        &format!("127.0.0.1:{port}"),
        "missing=[1]",
        "joined=[0]",
    ] {
        assert!(line.contains(told), "`{told}` is not told: {line}");
    }
}

#[test]
fn numbers_that_contradict_each_other_are_refused() {
    let place = Workplace::new();
    let port = free_port();
    let done = rank(&place, 2, 2, port).run();
    done.assert_code(1);
    done.assert_told(&["`RANK` (2)", "`WORLD_SIZE` (2)"]);
    let done = rank(&place, 0, 2, port).env("RANK", "first").run();
    done.assert_code(1);
    done.assert_told(&["`RANK`", "`first`"]);
}

/// Kills one rank of a job in the middle of training.
fn killed_rank_ends_the_job(victim: usize) {
    let place = Workplace::new();
    let grace = Duration::from_secs(20);
    let flags = ["--grace_period", &grace.as_secs().to_string()];
    let running = place
        .launch_nlp(2, &flags)
        .args(["--epochs", "1000000"])
        .args(["--output".as_ref(), place.output().as_os_str()])
        .start();
    running.wait_for_stdout("epoch 2: ");
    let all = with_argument(place.path("").to_str().unwrap());
    let pid = rank_among(&all, nlp(), victim).unwrap();
    let start = Instant::now();
    kill(pid);
    let done = running.wait();
    assert!(start.elapsed() < grace, "the other rank had to be killed");
    done.assert_code(137);
    done.assert_told(&[&format!("rank {victim} of 2"), "SIGKILL"]);
    assert_nothing_runs(&place);
    let left = Workplace::files(&place.output());
    assert!(left.is_empty(), "left in the output folder: {left:?}");
}

#[test]
fn the_death_of_another_rank_ends_the_job() {
    killed_rank_ends_the_job(1);
}

#[test]
fn the_death_of_the_first_rank_ends_the_job() {
    killed_rank_ends_the_job(0);
}

#[test]
fn a_killed_launcher_takes_its_ranks_along() {
    let place = Workplace::new();
    let running = place
        .launch_nlp(2, &["--grace_period", "1"])
        .args(["--epochs", "1000000"])
        .start();
    running.wait_for_stdout("epoch 1: ");
    drop(running);
    wait_until("the ranks to end", || {
        with_argument(place.path("").to_str().unwrap()).is_empty()
    });
}
