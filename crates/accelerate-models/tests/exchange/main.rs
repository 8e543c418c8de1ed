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

use accelerate_models::generation::{GENERATION_CONFIG_FILE, GenerationConfig};
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
    let settings: Vec<Option<GenerationConfig>> = folders
        .iter()
        .map(|[ours, _]| settings_of_its_own(ours))
        .collect();
    assert_eq!(settings.iter().flatten().count(), 7);
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
        // What transformers read from our file, it wrote into its own.
        let written = theirs.join(GENERATION_CONFIG_FILE).exists();
        assert_eq!(written, settings[index].is_some(), "{}", case.class);
        if let Some(settings) = &settings[index] {
            let read = GenerationConfig::from_folder(theirs).unwrap();
            assert_eq!(&read, settings, "{}", case.class);
        }
    }
}

/// Gives a model that generates settings that its configuration says nothing of.
fn settings_of_its_own(folder: &Path) -> Option<GenerationConfig> {
    if !folder.join(GENERATION_CONFIG_FILE).exists() {
        return None;
    }
    let mut settings = GenerationConfig::from_folder(folder).unwrap();
    settings.max_length = Some(9);
    settings.repetition_penalty = 1.25;
    settings.bad_words_ids = vec![vec![4], vec![5, 6]];
    settings.sequence_bias = vec![(vec![7, 8], -1.5)];
    settings.save_pretrained(folder).unwrap();
    Some(settings)
}
