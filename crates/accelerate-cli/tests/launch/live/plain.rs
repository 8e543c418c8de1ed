//! `watch` where there is no terminal, and where there is nothing to watch.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Output, Stdio},
};

use super::written::{Written, broken, newer_and_cut};
use crate::launcher::Folder;

fn watch(folder: &Folder, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_accelerate"));
    command
        .arg("watch")
        .args(words)
        .current_dir(folder.path(""))
        .stdin(Stdio::null());
    command
}

fn run(folder: &Folder, words: &[&str]) -> Output {
    watch(folder, words).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}

#[test]
fn lines_are_written_until_the_run_is_over() {
    let folder = Folder::new();
    let mut written = Written::new(&folder.path("runs"), 1, &[("max_steps", 10.0)]);
    written.losses(0..3);
    written.rank(0, 2, 0.2);
    let mut child = watch(&folder, &[]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let id = written.id();
    assert_eq!(lines.next().unwrap(), format!("run demo / {id}: running"));
    let line = lines.next().unwrap();
    assert!(
        line.starts_with("step 2 of 10  ") && line.ends_with("loss 0.6667  lr 0.0010"),
        "{line}"
    );
    assert_eq!(
        lines.next().unwrap(),
        "  rank 0: step 2, 0.50 s a step (data wait 10%, compute 40%, communication 50%, other 0%), \
         64.00 samples/s"
    );
    written.warn(0, "the loss\u{1b}[2J is large");
    assert_eq!(lines.next().unwrap(), "warning: rank 0: the loss is large");
    written.losses(3..9);
    written.finish(Some("out of memory"));
    assert_eq!(
        lines.next().unwrap(),
        format!("run demo / {id}: failed: out of memory")
    );
    assert!(lines.next().unwrap().starts_with("step 8 of 10"));
    assert!(lines.next().unwrap().starts_with("  rank 0"));
    assert_eq!(lines.next(), None);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_run_is_found_by_folder_name_or_age() {
    let folder = Folder::new();
    let root = folder.path("runs/project");
    let old = root.join("20000101-000000-aaaaaa");
    fs::create_dir_all(&root).unwrap();
    let mut written = Written::new(&root, 1, &[]);
    written.losses(0..2);
    let newest = written.folder();
    let id = written.id();
    written.finish(None);
    fs::create_dir(&old).unwrap();
    for name in ["run.json", "metrics.jsonl", "finished.json"] {
        fs::copy(newest.join(name), old.join(name)).unwrap();
    }
    for (words, wanted) in [
        (vec![], id.as_str()),
        (vec!["runs"], id.as_str()),
        (vec!["20000101-000000-aaaaaa"], "20000101-000000-aaaaaa"),
        (vec!["2000"], "20000101-000000-aaaaaa"),
        (vec![old.to_str().unwrap()], "20000101-000000-aaaaaa"),
    ] {
        let output = run(&folder, &words);
        let text = text(&output.stdout);
        assert!(
            text.starts_with(&format!("run demo / {wanted}: finished\n")),
            "{words:?}: {text}"
        );
        assert_eq!(output.status.code(), Some(0));
    }
    let output = run(&folder, &["20"]);
    let said = text(&output.stderr);
    assert!(
        said.starts_with("error: 2 runs in `runs` begin with `20`\n"),
        "{said}"
    );
    let output = run(&folder, &["other"]);
    assert!(text(&output.stderr).starts_with("error: no run `other` in `runs` or below it\n"));
}

#[test]
fn broken_empty_and_newer_folders_are_explained() {
    let folder = Folder::new();
    let output = run(&folder, &[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("error: no run in `.` or below it\n"),
        "{said}"
    );
    assert!(said.contains("hint: name the folder"), "{said}");
    fs::create_dir(folder.path("runs")).unwrap();
    broken(&folder.path("runs"), "broken");
    let output = run(&folder, &["runs/broken"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("run.json") && said.contains("caused by: "),
        "{said}"
    );
    let newer = newer_and_cut(&folder.path("newer"));
    let output = run(&folder, &[newer.to_str().unwrap()]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("ended without a word") && said.contains("newer version"),
        "{said}"
    );
    assert!(said.contains("step 2 of 10"), "{said}");
}
