//! A script that never ends on two CPU processes, whatever launches it.

use std::fs;

use accelerate_testkit::parity_python;
use serde_json::Value;

use crate::{
    original::{one_at_a_time, script},
    ours::{Done, Home},
};

const SCRIPT: &str = "test_distributed_data_loop.py";

/// Long enough for PyTorch to be loaded on a busy machine, which takes most of it.
const LIMIT: &str = "60";

#[test]
fn parity_a_script_that_hangs_ends_and_is_explained() {
    let Some(python) = parity_python("parity_a_script_that_hangs_ends_and_is_explained") else {
        return;
    };
    let path = script(&python, SCRIPT);
    let _turn = one_at_a_time();
    let home = Home::new();
    let mut command = home.accelerate();
    command
        .args(["launch", "--cpu", "--num_processes=2", "--grace_period=10"])
        .args(["--timeout", LIMIT, "--report", "report.json"])
        .arg(path)
        .env("PYTHON_EXEC", &python);
    let done = Done::of(&command.output().unwrap()).assert_code(124);
    let words = [
        format!("the time limit of {LIMIT} s has passed; what each rank is doing:"),
        format!("error: `{SCRIPT}` did not end within {LIMIT} s"),
        " s ago: `".to_owned(),
    ];
    for words in words {
        assert!(done.stderr.contains(&words), "no {words:?} in {done:#?}");
    }
    for rank in 0..2 {
        let told = format!("rank {rank} (process ");
        assert!(done.stderr.contains(&told), "no {told:?} in {done:#?}");
        assert!(has_frame(&done.stderr, rank), "rank {rank}: {done:#?}");
    }
    let report = fs::read_to_string(home.path("report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["outcome"], "timed_out");
    let ranks = report["attempts"][0]["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 2);
    for rank in ranks {
        let state = rank["activity"]["state"].as_str().unwrap();
        assert!(state.contains(" s of processor time"), "{state}");
    }
}

/// Whether a rank's Python told where in the script it was.
fn has_frame(stderr: &str, rank: usize) -> bool {
    let prefix = format!("0:{rank} ");
    stderr
        .lines()
        .filter_map(|line| line.strip_prefix(&prefix))
        .any(|line| {
            line.trim_start().starts_with("File \"") && line.contains(&format!("{SCRIPT}\", line "))
        })
}
