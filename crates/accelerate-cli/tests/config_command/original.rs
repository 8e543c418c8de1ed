//! Our files beside those of the original, which gets the same answers.
//!
//! The Python side is `tests/parity/answer_questions.py`.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use accelerate_testkit::parity_python;
use serde_json::{Value, json};

use crate::interviews;

#[test]
fn parity_same_answers_give_the_same_file() {
    let Some(python) = parity_python("parity_same_answers_give_the_same_file") else {
        return;
    };
    let interviews: Vec<Value> = interviews::ALL
        .iter()
        .map(|interview| {
            let answers = interview.original_answers.unwrap_or(interview.answers);
            json!({"answers": answers, "file": interview.file})
        })
        .collect();
    let script: PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "../../tests/parity/answer_questions.py",
    ]
    .iter()
    .collect();
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = Value::from(interviews).to_string();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let files: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(files.len(), interviews::ALL.len());
    for (theirs, interview) in files.iter().zip(interviews::ALL) {
        let name = interview.name;
        assert_eq!(
            theirs["answered"], interview.file,
            "{name}: its own questions"
        );
        assert_eq!(
            theirs["rewritten"], interview.file,
            "{name}: our file, read and written"
        );
    }
}
