//! The report for programs, and what programs say about themselves.

use std::fs;

use serde_json::{Value, json};

use crate::launcher::Folder;

fn read(folder: &Folder, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.path(name)).unwrap()).unwrap()
}

#[test]
fn a_failure_is_reported_with_all_ranks() {
    let folder = Folder::new();
    let body = r#"
        echo "$RANK $$" >> pids
        while test $(wc -l < pids) -lt 2; do sleep 0.01; done
        test $RANK = 0 && exec sleep 600
        echo "disk is on fire" >&2
        echo '{"message": {"message": "OSError: fire", "extraInfo": {"timestamp": "5"}}}' \
            > "$TORCHELASTIC_ERROR_FILE"
        exit 4"#;
    let script = folder.script("rank", body);
    let flags = ["--num_processes=2", "--report", "report.json"];
    let done = folder.launch().args(flags).args([script]).args(["x"]).run();
    done.assert_code(4);
    let causes = "  caused by: exit code 4\n  caused by: OSError: fire\n";
    assert!(done.stderr.contains(causes), "{}", done.stderr);

    let report = read(&folder, "report.json");
    assert_eq!(report["schema"], 1);
    assert_eq!(report["program"]["name"], "rank");
    assert_eq!(report["program"]["arguments"], json!(["x"]));
    assert_eq!(report["outcome"], "failed");
    assert_eq!(report["exit_code"], 4);
    let attempts = report["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 1);
    assert!(attempts[0]["started"].as_f64() <= attempts[0]["ended"].as_f64());
    let [first, second] = &attempts[0]["ranks"].as_array().unwrap()[..] else {
        panic!("two ranks: {report}")
    };
    assert_eq!(second["rank"], 1);
    assert_eq!(second["exit"], json!({"code": 4}));
    assert_eq!(second["last_lines"], json!(["disk is on fire"]));
    assert_eq!(second["first_failure"], true);
    assert_eq!(second["ended_by_launcher"], false);
    assert_eq!(second["error_file"]["message"]["message"], "OSError: fire");
    assert_eq!(first["exit"], json!({"signal": "SIGTERM"}));
    assert_eq!(first["first_failure"], false);
    assert_eq!(first["ended_by_launcher"], true);
    assert_eq!(first["error_file"], Value::Null);
    let pids = fs::read_to_string(folder.path("pids")).unwrap();
    for rank in [first, second] {
        let line = format!("{} {}\n", rank["rank"], rank["pid"]);
        assert!(pids.contains(&line), "{line} in {pids}");
        assert!(!rank["host"].as_str().unwrap().is_empty());
    }
}

#[test]
fn success_and_restarts_are_reported_too() {
    let folder = Folder::new();
    let script = folder.script("rank", "exit $((1 - TORCHELASTIC_RESTART_COUNT))");
    let flags = ["--cpu", "--quiet", "--max_restarts=1", "--report=report"];
    let done = folder.launch().args(flags).args([script]).run();
    done.assert_code(0);
    let report = read(&folder, "report");
    assert_eq!(report["outcome"], "success");
    assert_eq!(report["exit_code"], 0);
    let outcomes: Vec<_> = report["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| &attempt["outcome"])
        .collect();
    assert_eq!(outcomes, ["failed", "success"]);
}

#[test]
fn a_report_that_cannot_be_written_is_an_error_before_anything_starts() {
    let folder = Folder::new();
    let script = folder.script("rank", "touch started");
    for place in ["missing/report.json", "."] {
        let flags = ["--cpu", "--quiet", "--report", place];
        let done = folder.launch().args(flags).args([&script]).run();
        done.assert_code(1);
        let expected = format!("error: cannot write the report `{place}`");
        assert!(done.stderr.starts_with(&expected), "{}", done.stderr);
        assert!(!folder.path("started").exists());
    }
}

#[test]
fn the_file_of_an_outer_launcher_stays_in_force_for_a_single_process() {
    let folder = Folder::new();
    let script = folder.script("rank", r#"echo "$TORCHELASTIC_ERROR_FILE""#);
    let launch = || folder.launch().env("TORCHELASTIC_ERROR_FILE", "outer");
    let run = |count| {
        let flags = ["--quiet", "--no_prefix", "--num_processes", count];
        launch().args(flags).args([&script]).run().stdout
    };
    assert_eq!(run("1"), "outer\n");
    let ours = run("2");
    let [first, second] = ours.lines().collect::<Vec<_>>()[..] else {
        panic!("two ranks: {ours}")
    };
    assert!(!first.is_empty() && first != "outer" && first != second);
}
