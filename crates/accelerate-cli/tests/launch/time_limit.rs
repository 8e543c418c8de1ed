//! Jobs that hang: a time limit, and a look at what the ranks do.

use std::fs;

use crate::launcher::{Folder, is_running};
use rustix::process::Signal;

/// Both ranks hang; rank 1 has a child that no signal but SIGKILL ends.
const HANGING: &str = r#"
    echo $$ >> pids
    echo "step 3 of $RANK"
    if test $RANK = 1; then
        (trap '' ABRT TERM; echo $(exec sh -c 'echo $PPID') >> pids; while :; do sleep 0.1; done) &
    fi
    while :; do sleep 0.05; done"#;

#[test]
fn a_job_that_takes_too_long_is_ended_and_explained() {
    let folder = Folder::new();
    let script = folder.script("rank", HANGING);
    let flags = ["--num_processes=2", "--timeout=1", "--grace_period=0.3"];
    let launch = folder.launch().args(flags).args(["--report=report"]);
    let done = launch.args([script]).run();
    done.assert_code(124);
    let pids = folder.pids("pids", 3);
    assert!(!pids.iter().any(|pid| is_running(*pid)), "{pids:?}");
    let text = &done.stderr;
    assert!(
        text.contains("note: the time limit of 1 s has passed"),
        "{text}"
    );
    assert!(
        text.contains("error: `rank` did not end within 1 s"),
        "{text}"
    );
    assert!(text.contains(" s ago: `step 3 of 1`"), "{text}");
    if cfg!(target_os = "linux") {
        let told = |pid| text.contains(&format!("rank 1 (process {pid}): "));
        assert!(pids.iter().any(told), "{text}");
        assert!(text.contains(" s of processor time, 1 thread"), "{text}");
    }
    let report = fs::read_to_string(folder.path("report")).unwrap();
    assert!(report.contains(r#""outcome": "timed_out""#), "{report}");
    assert!(report.contains("`step 3 of 0`"), "{report}");
}

#[test]
fn the_limit_counts_over_all_attempts() {
    let folder = Folder::new();
    let body = "echo $TORCHELASTIC_RESTART_COUNT; sleep 0.4; exit 1";
    let script = folder.script("rank", body);
    let flags = ["--cpu", "--quiet", "--max_restarts=1000", "--timeout=1"];
    let done = folder.launch().args(flags).args([script]).run();
    let attempts = done.stdout.lines().count();
    assert!((1..=3).contains(&attempts), "{done:?}");
    // A failure just after the limit stays a failure.
    assert!(matches!(done.status.code(), Some(1 | 124)), "{done:?}");
}

#[test]
fn python_is_told_to_print_its_stacks_when_there_is_a_limit() {
    let folder = Folder::new();
    let script = folder.script("rank", r#"echo "[$PYTHONFAULTHANDLER]""#);
    let run = |flags: &[&str], own: Option<&str>| {
        let launch = folder.launch().args(["--cpu", "--quiet"]).args(flags);
        let launch = match own {
            Some(own) => launch.env("PYTHONFAULTHANDLER", own),
            None => launch,
        };
        launch.args([&script]).run().stdout
    };
    assert_eq!(run(&["--timeout=60"], None), "[1]\n");
    assert_eq!(run(&["--timeout=60"], Some("own")), "[own]\n");
    assert_eq!(run(&[], None), "[]\n");
}

#[test]
fn a_signal_shows_what_ranks_do_and_ends_nothing() {
    let folder = Folder::new();
    let body = r#"
        echo $$ >> pids
        if test $RANK = 1; then exit 0; fi
        echo "step 7"
        while ! test -e go; do sleep 0.02; done"#;
    let script = folder.script("rank", body);
    let flags = ["--num_processes=2"];
    let running = folder.launch().args(flags).args([script]).start();
    folder.pids("pids", 2);
    for seen in 1..=3 {
        running.signal(Signal::USR1);
        running.signal(Signal::USR2);
        running.wait_for_count_on_stderr("note: what each rank is doing:", seen);
    }
    fs::write(folder.path("go"), "").unwrap();
    let done = running.wait();
    done.assert_code(0);
    assert!(done.stderr.contains("`step 7`"), "{}", done.stderr);
    let ended = "rank 1 (process ";
    assert!(done.stderr.contains(ended), "{}", done.stderr);
    assert!(
        done.stderr.contains("has ended: exit code 0"),
        "{}",
        done.stderr
    );
}
