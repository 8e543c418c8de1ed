//! The self-test from outside: real processes under the built launcher, whole and broken.

#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]
#![expect(clippy::panic, reason = "a broken expectation fails the test")]

mod job;

use job::{Ended, alone, launch, rank_0_of};

#[track_caller]
fn assert_all_pass(ended: &Ended, processes: u64, needs_several: &[&str]) {
    ended.assert(0, &[]);
    let lines = ended.lines();
    let (summary, stages) = lines.split_last().unwrap();
    assert_eq!(stages.len(), 17, "{ended:#?}");
    for line in stages {
        let name = line["stage"].as_str().unwrap();
        let is_open = needs_several.contains(&name);
        if is_open {
            assert_eq!(line["status"], "not_available", "{line}");
            assert!(!line["reason"].as_str().unwrap().is_empty(), "{line}");
        } else {
            assert_eq!(line["status"], "ok", "{line}");
            assert!(line["checks"].as_u64().unwrap() >= processes, "{line}");
        }
    }
    assert_eq!(summary["processes"], processes);
    assert_eq!(summary["failed"], 0);
    let open = needs_several.len();
    assert_eq!(summary["not_available"], open);
    assert_eq!(summary["ok"], stages.len() - open);
}

#[test]
fn one_process_passes() {
    let several = ["collectives", "exchanges", "gradient_compression"];
    assert_all_pass(&alone(&["--json"]), 1, &several);
}

#[test]
fn two_and_three_processes_pass() {
    for processes in [2, 3] {
        let ended = launch(processes, &[]);
        assert_all_pass(&ended, processes as u64, &[]);
        let introduced = ended.stage("state")["notes"].as_array().unwrap().len();
        assert_eq!(introduced, processes);
    }
}

#[test]
fn text_is_one_line_per_stage_and_a_summary() {
    let ended = alone(&["--stages", "state,gradient_compression"]);
    ended.assert(0, &[]);
    let lines: Vec<&str> = ended.out.lines().collect();
    let [headline, state, rank, compression, summary] = lines[..] else {
        panic!("{ended:#?}");
    };
    assert!(headline.starts_with("accelerate-selftest ") && headline.contains("1 process,"));
    assert!(
        state.starts_with("state  ") && state.contains(" ok 0."),
        "{state}"
    );
    assert!(
        rank.contains("rank 0 of 1") && rank.contains("libtorch 2."),
        "{rank}"
    );
    assert!(compression.contains("not available: "), "{compression}");
    assert!(summary.starts_with("2 stages on 1 process: 1 ok, 0 failed, 1 not available"));
}

#[test]
fn a_stopped_rank_is_named_in_time() {
    let ended = launch(
        3,
        &[
            "--stages",
            "collectives",
            "--stage_timeout",
            "3",
            "--break_stage",
            "collectives/barrier:1:stop",
        ],
    );
    ended.assert(
        3,
        &[
            "rank 0 of 3: stage `collectives` has not ended within 3.00 s",
            "rank 2 of 3: stage `collectives` has not ended within 3.00 s",
            "in `barrier`, 12 of 12",
            "waiting for rank 1, last seen in `barrier`, 12 of 12",
            "it stands still",
            "failed on rank",
        ],
    );
    assert!(!ended.err.contains("waiting for rank 0"), "{ended:#?}");
    assert!(!ended.err.contains("waiting for rank 2"), "{ended:#?}");
    let line = ended.stage("collectives");
    assert_eq!(line["status"], "timed_out");
    assert!(line["seconds"].as_f64().unwrap() >= 3.0);
}

#[test]
fn a_stopped_rank_0_takes_the_store_along_and_that_is_told() {
    let ended = launch(
        2,
        &[
            "--stages",
            "trees",
            "--stage_timeout",
            "3",
            "--break_stage",
            "trees/reduce:0:stop",
        ],
    );
    ended.assert(
        3,
        &[
            "rank 1 of 2: stage `trees` has not ended within 3.00 s",
            "the store of the job, which rank 0 or the launcher serves, has not answered",
        ],
    );
}

#[test]
fn a_wrong_value_on_one_rank_fails_the_stage_for_all_and_no_other_stage() {
    let ended = launch(
        2,
        &["--stages", "trees,loading", "--break_stage", "trees:1:fail"],
    );
    ended.assert(1, &["failed on rank"]);
    let line = ended.stage("trees");
    assert_eq!(line["status"], "failed");
    assert_eq!(line["findings"][0]["rank"], 1);
    assert_eq!(line["findings"][0]["step"], "gather");
    assert_eq!(ended.stage("loading")["status"], "ok");
    assert_eq!(ended.summary()["failed"], 1);
}

#[test]
fn an_error_on_one_rank_does_not_leave_the_others_waiting() {
    let arguments = [
        "--stages",
        "trees,loading",
        "--break_stage",
        "trees/reduce:1:error",
    ];
    let ended = launch(2, &arguments);
    ended.assert(
        1,
        &[
            "rank 1 of 2: stage `trees` failed at `reduce`",
            "rank 0 of 2: waits in vain in stage `trees` at `reduce`",
            "rank 1 has failed there",
        ],
    );
    assert_eq!(ended.stage("trees")["status"], "failed");
    assert_eq!(ended.summary()["ok"], 0, "nothing can be tried after that");
}

#[test]
fn a_rank_that_exits_is_the_one_the_launcher_names() {
    let arguments = [
        "--stages",
        "collectives",
        "--break_stage",
        "collectives/gather:1:exit",
    ];
    let ended = launch(2, &arguments);
    ended.assert(9, &["failed on rank 1 of 2", "exit code 9"]);
}

#[test]
fn a_stage_that_does_not_exist_is_a_wrong_command_line() {
    let ended = alone(&["--stages", "loading,magic"]);
    ended.assert(2, &["no stage `magic`", "gradient_compression"]);
    assert_eq!(ended.out, "");
}

#[test]
fn a_rank_that_never_comes_is_named() {
    let ended = rank_0_of(2, &["--json", "--stage_timeout", "0.5"]);
    ended.assert(3, &["error: 1 of 2 ranks did not join", "missing [1]"]);
    assert_eq!(ended.stage("start")["status"], "failed");
}
