//! Nothing stays behind: neither after a signal, nor after the death of a rank or of the launcher.

use std::fs;

use crate::launcher::{Folder, Running, is_running, wait_until_gone};
use rustix::process::{Pid, Signal, kill_process};

/// Two ranks that refuse SIGTERM, each with a child and with a grandchild that detaches itself from
/// parent, group and session. All write their process numbers.
const STUBBORN: &str = r#"
    trap '' TERM INT HUP
    echo $$ >> pids
    sleep 600 & echo $! >> pids
    (setsid sh -c 'trap "" TERM HUP; echo $$ >> pids; sleep 600' &)
    while :; do sleep 0.1; done"#;

/// Ranks that end at once when they are told to.
const POLITE: &str = r#"
    trap 'echo $RANK stops; exit 0' TERM
    echo $$ >> pids
    while :; do sleep 0.05; done"#;

fn start(folder: &Folder, body: &str, grace: &str) -> Running {
    let script = folder.script("rank", body);
    let flags = ["--num_processes=2", "--no_prefix", "--grace_period", grace];
    folder.launch().args(flags).args([script]).start()
}

fn stubborn_after(signal: Signal, code: i32) {
    let folder = Folder::new();
    let running = start(&folder, STUBBORN, "0.3");
    let pids = folder.pids("pids", 6);
    assert!(pids.iter().all(|pid| is_running(*pid)));
    running.signal(signal);
    running.wait().assert_code(code);
    let left: Vec<_> = pids.iter().filter(|pid| is_running(**pid)).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn an_interrupt_ends_the_whole_tree() {
    stubborn_after(Signal::INT, 130);
}

#[test]
fn a_termination_ends_the_whole_tree() {
    stubborn_after(Signal::TERM, 143);
}

#[test]
fn a_hang_up_ends_the_whole_tree() {
    stubborn_after(Signal::HUP, 129);
}

#[test]
fn the_tree_ends_when_the_launcher_is_killed() {
    let folder = Folder::new();
    let running = start(&folder, STUBBORN, "0.3");
    let pids = folder.pids("pids", 6);
    running.signal(Signal::KILL);
    drop(running);
    wait_until_gone(&pids);
}

#[test]
fn the_tree_ends_when_a_rank_fails() {
    let folder = Folder::new();
    let body =
        format!("test $RANK = 0 && while ! test -e go; do sleep 0.01; done && exit 3\n{STUBBORN}");
    let running = start(&folder, &body, "0.3");
    let pids = folder.pids("pids", 3);
    fs::write(folder.path("go"), "").unwrap();
    running.wait().assert_code(3);
    assert!(!pids.iter().any(|pid| is_running(*pid)));
}

#[test]
fn what_a_failing_rank_leaves_behind_ends_too() {
    let folder = Folder::new();
    let body = "(setsid sh -c 'echo $$ >> pids; exec sleep 600' &)
        test $RANK = 1 || exec sleep 600
        while ! test -e go; do sleep 0.01; done
        exit 9";
    let running = start(&folder, body, "20");
    let pids = folder.pids("pids", 2);
    fs::write(folder.path("go"), "").unwrap();
    running.wait().assert_code(9);
    assert!(!pids.iter().any(|pid| is_running(*pid)));
}

#[test]
fn what_a_successful_job_leaves_behind_ends_too() {
    let folder = Folder::new();
    let body = "(setsid sh -c 'echo $$ >> pids; exec sleep 600' &)
        while ! test -e go; do sleep 0.01; done";
    let running = start(&folder, body, "20");
    let pids = folder.pids("pids", 2);
    fs::write(folder.path("go"), "").unwrap();
    running.wait().assert_code(0);
    assert!(!pids.iter().any(|pid| is_running(*pid)));
}

#[test]
fn polite_ranks_end_within_the_grace_period_by_themselves() {
    let folder = Folder::new();
    let running = start(&folder, POLITE, "50");
    let pids = folder.pids("pids", 2);
    running.signal(Signal::TERM);
    let done = running.wait();
    done.assert_code(143);
    assert_eq!(done.lines(), ["0 stops", "1 stops"]);
    assert!(done.stderr.contains("ended by SIGTERM"), "{}", done.stderr);
    wait_until_gone(&pids);
}

#[test]
fn a_program_that_saves_when_it_is_asked_to_end_leaves_in_peace() {
    let folder = Folder::new();
    let body = r#"
        trap 'sleep 0.2; exit 75' TERM
        echo $$ >> pids
        while :; do sleep 0.01; done"#;
    let running = start(&folder, body, "50");
    let pids = folder.pids("pids", 2);
    // A cluster manager may signal everything there is, and the launcher passes on what it gets.
    running.signal(Signal::TERM);
    for pid in with_parent_of(&pids) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let done = running.wait();
    done.assert_code(75);
    assert!(
        done.stderr.contains("started again it goes on"),
        "{}",
        done.stderr
    );
    wait_until_gone(&pids);
}

/// The keepers of these programs.
fn with_parent_of(pids: &[Pid]) -> Vec<Pid> {
    let parent = |pid: &Pid| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        let behind_name = stat.rsplit_once(')')?.1;
        Pid::from_raw(behind_name.split_whitespace().nth(1)?.parse().ok()?)
    };
    pids.iter().filter_map(parent).collect()
}

#[test]
fn a_second_signal_does_not_wait_for_the_grace_period() {
    let folder = Folder::new();
    let running = start(&folder, STUBBORN, "1000");
    let pids = folder.pids("pids", 6);
    running.signal(Signal::TERM);
    running.wait_for_stderr("waiting up to");
    running.signal(Signal::INT);
    running.wait().assert_code(143);
    assert!(!pids.iter().any(|pid| is_running(*pid)));
}

#[test]
fn a_single_process_is_watched_in_the_same_way() {
    let folder = Folder::new();
    let script = folder.script("rank", STUBBORN);
    for (signal, code) in [(Signal::TERM, Some(143)), (Signal::KILL, None)] {
        let _ = fs::remove_file(folder.path("pids"));
        let flags = ["--cpu", "--grace-period", "0.2"];
        let running = folder.launch().args(flags).args([&script]).start();
        let pids = folder.pids("pids", 3);
        running.signal(signal);
        assert_eq!(running.wait().status.code(), code);
        wait_until_gone(&pids);
    }
}

#[test]
fn a_rank_killed_from_outside_is_reported() {
    let folder = Folder::new();
    let running = start(&folder, r#"echo $$ >> pids-$RANK; exec sleep 600"#, "20");
    let [pid] = folder.pids("pids-1", 1)[..] else {
        panic!("one process per rank")
    };
    kill_process(pid, Signal::KILL).unwrap();
    let done = running.wait();
    done.assert_code(137);
    assert!(
        done.stderr.contains("failed on rank 1 of 2"),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("killed by SIGKILL"), "{}", done.stderr);
    wait_until_gone(&folder.pids("pids-0", 1));
}

#[test]
fn the_tree_ends_when_a_process_in_between_is_killed() {
    let folder = Folder::new();
    let running = start(&folder, STUBBORN, "0.3");
    let pids = folder.pids("pids", 6);
    let stat = fs::read_to_string(format!("/proc/{}/stat", pids[0].as_raw_nonzero())).unwrap();
    let parent = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap();
    kill_process(
        Pid::from_raw(parent.parse().unwrap()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    running.wait().assert_code(137);
    assert!(!pids.iter().any(|pid| is_running(*pid)));
}

#[test]
fn what_an_ended_rank_left_behind_does_not_outlive_a_killed_launcher() {
    let folder = Folder::new();
    let body = "test $RANK = 1 && exec sleep 600
        (setsid sh -c 'echo $$ >> pids; exec sleep 600' &)
        while ! test -e pids; do sleep 0.01; done; echo $$ >> ended";
    let running = start(&folder, body, "0.3");
    let pids = folder.pids("pids", 1);
    wait_until_gone(&folder.pids("ended", 1));
    assert!(is_running(pids[0]), "nobody ends it while rank 1 runs");
    running.signal(Signal::KILL);
    wait_until_gone(&pids);
}
