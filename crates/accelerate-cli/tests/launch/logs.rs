//! Log files: one folder for each run, attempt and rank.

use std::{fs, path::Path};

use crate::launcher::Folder;

/// All files below a folder: path from the run on, and content.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for run in fs::read_dir(folder).unwrap().flatten() {
        collect(&run.path(), &run.path(), &mut found);
    }
    found.sort();
    found
}

fn collect(top: &Path, folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(top, &path, found);
        } else {
            let name = path.strip_prefix(top).unwrap().display().to_string();
            found.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    expected.iter().map(owned).collect()
}

#[test]
fn each_attempt_has_its_files_and_all_is_shown_too() {
    let folder = Folder::new();
    let body = r#"
        echo "out $RANK"
        echo "err $RANK" >&2
        if test $TORCHELASTIC_RESTART_COUNT = 1; then exit 0; fi
        printf again > "$TORCHELASTIC_ERROR_FILE"
        exit 1"#;
    let script = folder.script("rank", body);
    let flags = [
        "--cpu",
        "--quiet",
        "--log_dir=deep/logs",
        "--max_restarts=1",
    ];
    let launch = folder.launch().env("RANK", "0").args(flags);
    let done = launch.args([script]).run();
    done.assert_code(0);
    assert_eq!(done.stdout, "out 0\nout 0\n");
    let expected = [
        ("attempt_0/0/error.json", "again"),
        ("attempt_0/0/stderr.log", "err 0\n"),
        ("attempt_0/0/stdout.log", "out 0\n"),
        ("attempt_1/0/stderr.log", "err 0\n"),
        ("attempt_1/0/stdout.log", "out 0\n"),
    ];
    assert_eq!(files(&folder.path("deep/logs")), pairs(&expected));
    let runs: Vec<_> = fs::read_dir(folder.path("deep/logs")).unwrap().collect();
    let run = runs[0].as_ref().unwrap().file_name();
    assert!(run.to_str().unwrap().starts_with("none_"), "{run:?}");
}

#[test]
fn tee_selects_the_streams_that_get_files() {
    let folder = Folder::new();
    let script = folder.script("rank", "echo out $RANK; echo err $RANK >&2");
    let run = |logs: &str, tee: &str| {
        let flags = [
            "--quiet",
            "--num_processes=2",
            "--log_dir",
            logs,
            "--tee",
            tee,
        ];
        let done = folder.launch().args(flags).args([&script]).run();
        done.assert_code(0);
        assert_eq!(done.lines(), ["0:0 out 0", "0:1 out 1"]);
        files(&folder.path(logs))
    };
    let expected = [
        ("attempt_0/0/stdout.log", "out 0\n"),
        ("attempt_0/1/stderr.log", "err 1\n"),
    ];
    assert_eq!(run("by-rank", "0:1,1:2"), pairs(&expected));
    assert_eq!(run("none", "0"), []);
    let expected = [
        ("attempt_0/0/stderr.log", "err 0\n"),
        ("attempt_0/1/stderr.log", "err 1\n"),
    ];
    assert_eq!(run("stderr", "2"), pairs(&expected));
}

#[test]
fn a_wrong_selection_is_refused() {
    let folder = Folder::new();
    for tee in ["4", "0:1,", "both"] {
        let done = folder.launch().args(["--tee", tee, "true"]).run();
        done.assert_code(2);
        assert!(
            done.stderr.contains("expected `0` (none)"),
            "{}",
            done.stderr
        );
    }
    let flags = ["--num_processes=2", "--tee=2:1", "true"];
    let done = folder.launch().args(flags).run();
    done.assert_code(2);
    let expected = "error: `--tee` names rank 2: expected ranks below 2";
    assert!(done.stderr.contains(expected), "{}", done.stderr);
}

#[test]
fn dev_null_is_no_folder_and_a_file_is_refused_before_anything_starts() {
    let folder = Folder::new();
    let script = folder.script("rank", "echo $$ > started");
    let launch = |logs| {
        let flags = ["--cpu", "--quiet", "--log_dir", logs];
        folder.launch().args(flags).args([&script]).run()
    };
    launch("/dev/null").assert_code(0);
    fs::remove_file(folder.path("started")).unwrap();
    fs::write(folder.path("file"), "").unwrap();
    let done = launch("file");
    done.assert_code(1);
    let expected = "error: cannot write log files into `file`";
    assert!(done.stderr.starts_with(expected), "{}", done.stderr);
    assert!(!folder.path("started").exists());
}
