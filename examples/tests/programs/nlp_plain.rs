//! The sentiment job without `Accelerator` is the same job.

use std::fs;

use serde_json::Value;

use crate::process::Program;
use crate::workplace::{Workplace, nlp};

const PLAIN: &str = env!("CARGO_BIN_EXE_nlp_plain");

/// The losses of one process, and what it printed.
fn losses(place: &Workplace, program: Program, name: &str) -> (Vec<f64>, String) {
    let bench = place.path(name);
    let done = program
        .args(["--epochs", "8", "--bench-json"])
        .args([&bench])
        .run();
    done.assert_code(0);
    let path = place.path(&format!("{name}.rank0.json"));
    let measured: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let losses = measured["losses"].as_array().unwrap();
    let losses = losses.iter().map(|loss| loss.as_f64().unwrap());
    (losses.collect(), done.stdout)
}

#[test]
fn both_forms_learn_alike_and_save_a_model() {
    let place = Workplace::new();
    let folder = place.output();
    let plain = Program::new(PLAIN, &place.path("logs"))
        .args(place.job())
        .args(["--output".as_ref(), folder.as_os_str()]);
    let (plain, told) = losses(&place, plain, "plain");
    let (accelerated, _) = losses(&place, place.nlp(), "accelerated");
    assert_eq!(plain.len(), accelerated.len());
    // The same first weights; the order of the samples is drawn in other ways.
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    let quarter = plain.len() / 4;
    for losses in [plain, accelerated] {
        let (first, last) = (&losses[..quarter], &losses[3 * quarter..]);
        assert!(mean(last) < mean(first) / 2.0, "{losses:?}");
    }
    assert_eq!(told.matches("on 7 held-out snippets").count(), 8, "{told}");
    let again = Program::new(nlp(), &place.path("logs"))
        .args(place.job())
        .args(["--model".as_ref(), folder.as_os_str()])
        .args(["--max-steps", "1"]);
    again.run().assert_code(0);
}
