//! Folders that our models write are read by transformers without a complaint, and the other way
//! round.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod bert;
mod case;
mod decoders;
mod t5;
mod vision;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use accelerate_testkit::parity_python;
use serde_json::{Value, json};
use tch::Tensor;

use case::{assert_near, flat};

/// Runs the Python side on all cases at once.
fn ask(python: &Path, jobs: &Value) -> Vec<Value> {
    let script: PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "../../tests/parity/exchange_models.py",
    ]
    .iter()
    .collect();
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(jobs.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn parity_folders_are_read_by_transformers_and_theirs_by_us() {
    let name = "parity_folders_are_read_by_transformers_and_theirs_by_us";
    let Some(python) = parity_python(name) else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let mut cases = bert::cases();
    cases.extend(t5::cases());
    cases.extend(decoders::cases());
    cases.extend(vision::cases());
    let folders: Vec<[PathBuf; 2]> = (0..cases.len())
        .map(|index| ["ours", "theirs"].map(|side| place.path().join(format!("{index}-{side}"))))
        .collect();
    let outputs: Vec<Tensor> = cases
        .iter()
        .zip(&folders)
        .map(|(case, [ours, _])| (case.write)(ours, &case.inputs))
        .collect();
    let jobs = cases.iter().zip(&folders).map(|(case, [ours, theirs])| {
        json!({
            "class": case.class, "folder": ours, "again": theirs,
            "inputs": case.inputs, "output": case.output,
        })
    });
    let answers = ask(&python, &jobs.collect());
    assert_eq!(answers.len(), cases.len());
    for (index, answer) in answers.iter().enumerate() {
        let (case, [ours, theirs]) = (&cases[index], &folders[index]);
        assert_eq!(answer["warnings"], json!([]), "{}", case.class);
        let mut numbers = Vec::new();
        flat(&answer["output"], &mut numbers);
        let expected = Tensor::from_slice(&numbers);
        assert_near(case.class, &outputs[index], &expected);
        let again = (case.read)(theirs, ours, &case.inputs);
        assert_near(case.class, &again, &expected);
    }
}
