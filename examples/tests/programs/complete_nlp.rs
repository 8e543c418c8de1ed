//! The sentiment job with every feature at once.

use std::fs;

use crate::process::{Done, Program};
use crate::workplace::Workplace;

const PROGRAM: &str = env!("CARGO_BIN_EXE_complete_nlp");

const EVERYTHING: [&str; 12] = [
    "--mixed-precision",
    "bf16",
    "--gradient-accumulation-steps",
    "2",
    "--max-grad-norm",
    "1",
    "--lr-scheduler",
    "cosine",
    "--warmup-ratio",
    "0.2",
    "--epochs",
    "6",
];

/// The accuracy of the last epoch.
fn accuracy(done: &Done) -> f64 {
    let last = done.stdout.lines().rfind(|line| line.contains("accuracy"));
    let words: Vec<&str> = last.unwrap().split([' ', ',']).collect();
    let at = words.iter().position(|&word| word == "accuracy").unwrap();
    words[at + 1].parse().unwrap()
}

#[test]
fn everything_at_once_learns_on_one_process_and_on_two() {
    for processes in [1, 2] {
        let place = Workplace::new();
        let curves = place.path("curves.svg");
        let program = match processes {
            1 => Program::new(PROGRAM, &place.path("logs")),
            _ => place.launch(processes, &["--quiet"]).args([PROGRAM]),
        };
        let batch_size = (4 / processes).to_string();
        let done = program
            .args(place.job())
            .args(EVERYTHING)
            .args(["--batch-size", &batch_size])
            .args(["--curves".as_ref(), curves.as_os_str()])
            .args(["--output".as_ref(), place.output().as_os_str()])
            .run();
        done.assert_code(0);
        assert!(accuracy(&done) > 0.85, "nothing was learnt: {done:#?}");
        let picture = fs::read_to_string(&curves).unwrap();
        for panel in ["loss", "learning rate", "accuracy"] {
            assert!(picture.contains(panel), "`{panel}` is not drawn");
        }
        let files = ["config.json", "model.safetensors", "tokenizer.json"];
        assert_eq!(Workplace::files(&place.output()), files);
    }
}

#[test]
fn every_other_flag_is_taken() {
    let place = Workplace::new();
    let run = |flags: &[&str]| {
        let program = Program::new(PROGRAM, &place.path("logs")).args(place.job());
        program.args(["--max-steps", "2"]).args(flags).run()
    };
    run(&[
        "--max-grad-value",
        "0.5",
        "--device-specific-seed",
        "--deterministic",
        "--lr-scheduler",
        "constant_with_warmup",
        "--num-workers",
        "0",
        "--split-batches",
        "--weight-decay",
        "0",
    ])
    .assert_code(0);
    run(&["--dispatch-batches", "--seed", "7"]).assert_code(0);
    let refused = run(&["--lr-scheduler", "zigzag"]);
    refused.assert_code(2);
    refused.assert_told(&["zigzag", "cosine_with_restarts"]);
    let refused = run(&["--max-grad-norm", "1", "--max-grad-value", "1"]);
    refused.assert_code(2);
    let refused = run(&["--warmup-ratio", "1.5"]);
    refused.assert_told(&["within 0..=1"]);
}
