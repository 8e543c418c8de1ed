//! Restarts: the whole group again, with another port and a count.

use std::fs;

use crate::launcher::{Folder, is_running};
use rustix::process::Signal;

/// Rank 1 fails in the attempts before `$GOOD`, after both have spoken; each rank leaves a process
/// behind in each attempt.
const FAILING: &str = r#"
    (setsid sh -c 'echo $$ >> left; exec sleep 600' &)
    while test $(wc -l < left) -lt $((2 * TORCHELASTIC_RESTART_COUNT + 2)); do sleep 0.01; done
    echo "$RANK $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $MASTER_PORT"
    echo said >> said
    while test $(wc -l < said) -lt $((2 * TORCHELASTIC_RESTART_COUNT + 2)); do sleep 0.01; done
    if test $TORCHELASTIC_RESTART_COUNT -ge $GOOD; then exit 0; fi
    if test $RANK = 1; then echo "bad luck $TORCHELASTIC_RESTART_COUNT" >&2; exit 7; fi
    exec sleep 600"#;

fn run(folder: &Folder, good: &str, restarts: &str, more: &[&str]) -> crate::launcher::Done {
    fs::write(folder.path("left"), "").unwrap();
    let script = folder.script("rank", FAILING);
    let launch = folder.launch().env("GOOD", good);
    let flags = ["--no_prefix", "--num_processes=2", "--max_restarts"];
    let launch = launch.args(flags).args([restarts]).args(more);
    launch.args([script]).run()
}

#[test]
fn a_job_that_fails_once_succeeds_with_one_restart() {
    let folder = Folder::new();
    let done = run(&folder, "1", "3", &[]);
    done.assert_code(0);
    let lines = done.lines();
    let words: Vec<Vec<_>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    let places: Vec<_> = words.iter().map(|words| words[..3].join(" ")).collect();
    assert_eq!(places, ["0 0 3", "0 1 3", "1 0 3", "1 1 3"]);
    assert_eq!(words[0][3], words[2][3], "one port for all ranks");
    assert_ne!(words[0][3], words[1][3], "another port for each attempt");
    let note = "note: `rank` failed on rank 1 of 2; restart 1 of 3\n  caused by: exit code 7\n";
    assert!(done.stderr.contains(note), "{}", done.stderr);
    assert!(!done.stderr.contains("error:"), "{}", done.stderr);
    let left = folder.pids("left", 4);
    assert!(!left.iter().any(|pid| is_running(*pid)), "{left:?}");
}

#[test]
fn after_the_last_restart_the_code_of_the_rank_is_passed_on() {
    let folder = Folder::new();
    let done = run(&folder, "9", "2", &["--debug"]);
    done.assert_code(7);
    assert_eq!(done.lines().len(), 2 * 3, "{done:?}");
    assert_eq!(done.stderr.matches("; restart ").count(), 2);
    let report = &done.stderr[done.stderr.find("error:").unwrap()..];
    assert_eq!(
        report,
        "error: `rank` failed on rank 1 of 2, after 2 restarts\n  caused by: exit code 7\n  \
         last lines of rank 1 on stderr:\n    bad luck 2\n  other ranks:\n    \
         rank 0: ended by the launcher (SIGTERM)\n"
    );
}

#[test]
fn without_restarts_there_is_one_attempt() {
    let folder = Folder::new();
    let done = run(&folder, "9", "0", &[]);
    done.assert_code(7);
    assert!(
        done.stderr
            .contains("error: `rank` failed on rank 1 of 2\n")
    );
    assert_eq!(done.lines().len(), 2);
}

#[test]
fn a_port_that_the_user_chose_serves_all_attempts() {
    let folder = Folder::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let done = run(&folder, "1", "1", &["--main_process_port", &port]);
    done.assert_code(0);
    assert!(done.lines().iter().all(|line| line.ends_with(&port)));
}

#[test]
fn a_single_process_is_started_again_too() {
    let folder = Folder::new();
    let body = "echo $TORCHELASTIC_RESTART_COUNT; test $TORCHELASTIC_RESTART_COUNT = 2";
    let script = folder.script("rank", body);
    let flags = ["--quiet", "--cpu", "--max_restarts=2"];
    let done = folder.launch().args(flags).args([script]).run();
    done.assert_code(0);
    assert_eq!(done.stdout, "0\n1\n2\n");
    assert_eq!(done.stderr, "");
}

#[test]
fn a_signal_ends_the_job_whatever_restarts_are_left() {
    let folder = Folder::new();
    let script = folder.script("rank", "echo $$ >> pids; exec sleep 600");
    let flags = ["--num_processes=2", "--max_restarts=5"];
    let running = folder.launch().args(flags).args([script]).start();
    folder.pids("pids", 2);
    running.signal(Signal::TERM);
    running.wait().assert_code(143);
    assert_eq!(folder.pids("pids", 2).len(), 2);
}
