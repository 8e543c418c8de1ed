//! The views on a terminal.

use std::fs;

use rustix::process::Signal;

use super::{pseudo_terminal::Session, written::Written};
use crate::launcher::Folder;

/// A run of two ranks that goes on.
fn going(folder: &Folder) -> Written {
    let mut run = Written::new(&folder.path("runs"), 2, &[("max_steps", 100.0)]);
    run.losses(0..20);
    for step in 0..20 {
        run.rank(0, step, 0.2);
        run.rank(1, step, 0.45);
    }
    run.warn(1, "the loss is large");
    run
}

#[test]
fn a_run_is_shown_followed_and_left() {
    let folder = Folder::new();
    let mut run = going(&folder);
    let mut session = Session::start(&folder.path(""), ["watch"], &[]);
    session.wait_for("step 19 of 100");
    // The last line comes last.
    session.wait_for("q leave");
    let screen = session.contents();
    for text in [
        &format!("demo / {}  running", run.id()),
        " loss 0.1000",
        " lr 0.0010",
        "2 ranks, stragglers: 1",
        "STRAGGLER",
        "0.50 s",
        "64.00",
        "1.5 GiB",
        "rank 1: the loss is large",
    ] {
        assert!(screen.contains(text), "no `{text}` in\n{screen}");
    }
    assert!(session.has_colours());

    run.losses(20..40);
    session.wait_for("step 39 of 100");
    session.resize(16, 60);
    session.wait_until("16 lines", |screen| {
        screen
            .rows(0, 60)
            .last()
            .is_some_and(|line| line.starts_with("q leave"))
    });
    assert!(
        session.contents().contains("step 39 of 100"),
        "{}",
        session.contents()
    );
    run.finish(Some("out of memory"));
    session.wait_for("failed: out of memory");
    session.press("q");
    let (code, screen) = session.end();
    assert_eq!(
        (code, screen.as_str()),
        (Some(0), ""),
        "nothing is left on the screen"
    );
}

#[test]
fn colours_can_be_left_out_and_signals_leave_the_terminal_clean() {
    let folder = Folder::new();
    let _run = going(&folder);
    let mut session = Session::start(&folder.path(""), ["watch", "runs"], &[("NO_COLOR", "1")]);
    session.wait_for("q leave");
    assert!(!session.has_colours());
    session.signal(Signal::TERM);
    assert_eq!(session.end().0, Some(128 + 15));

    let mut session = Session::start(&folder.path(""), ["watch"], &[]);
    session.wait_for("STRAGGLER");
    session.press("\x03");
    assert_eq!(session.end().0, Some(0));

    let mut session = Session::start(&folder.path(""), ["watch"], &[("TERM", "dumb")]);
    session.wait_for("step 19 of 100");
    assert!(!session.bytes.contains(&0x1b), "plain lines");
    // Not the interrupt, which jobs of a shell's background ignore.
    session.signal(Signal::TERM);
    session.end();
}

#[test]
fn a_job_is_watched_and_goes_on_when_the_view_is_left() {
    let folder = Folder::new();
    let body = "echo early $RANK; while ! test -e go; do sleep 0.01; done; echo late $RANK";
    let script = folder.script("job", body);
    let script = script.to_str().unwrap();
    let words = ["launch", "--watch", "--num_processes=2", script];
    let mut session = Session::start(&folder.path(""), words, &[]);
    session.wait_for("waiting for a run");
    session.wait_for("0:1 early 1");
    let mut run = Written::new(&folder.path("runs"), 2, &[]);
    run.losses(0..3);
    session.wait_for("step 2");
    session.press("q");
    session.wait_until("the screen of before", |screen| !screen.alternate_screen());
    session.wait_for("0:0 early 0");
    fs::write(folder.path("go"), "").unwrap();
    let (code, screen) = session.end();
    assert_eq!(code, Some(0), "{screen}");
    for line in ["0:0 early 0", "0:1 early 1", "0:0 late 0", "0:1 late 1"] {
        assert_eq!(screen.matches(line).count(), 1, "{line} in\n{screen}");
    }
}

#[test]
fn ctrl_c_ends_a_watched_job_and_its_failure_is_told_on_the_terminal_of_before() {
    let folder = Folder::new();
    let script = folder.script("job", "echo begun; exec sleep 600");
    let words = ["launch", "--watch", script.to_str().unwrap()];
    let mut session = Session::start(&folder.path(""), words, &[]);
    session.wait_for("begun");
    session.press("\x03");
    let (code, screen) = session.end();
    assert_eq!(code, Some(128 + 2), "{screen}");
    assert!(
        screen.contains("begun") && screen.contains("SIGINT"),
        "{screen}"
    );

    let script = folder.script("failing", "echo cause >&2; exit 7");
    let words = [
        "launch",
        "--watch",
        "--num_processes=2",
        script.to_str().unwrap(),
    ];
    let (code, screen) = Session::start(&folder.path(""), words, &[]).end();
    assert_eq!(code, Some(7), "{screen}");
    assert!(
        screen.contains("0:0 cause") && screen.contains("error: "),
        "{screen}"
    );
}
