//! A small T5 that learns to tidy up text.

use std::fmt::Write as _;
use std::fs;

use crate::process::{Done, Program};
use crate::workplace::Workplace;

const PROGRAM: &str = env!("CARGO_BIN_EXE_seq2seq");

/// Lines of few words, so that little has to be learnt.
fn lines() -> String {
    let words = [
        "Good", "bad,", "FILM!", "plot;", "great", "\"dull\"", "warm", "Cold.",
    ];
    let mut text = String::new();
    for number in 0..160 {
        let word = |place: usize| words[(number / 8_usize.pow(place as u32)) % 8];
        let _written = writeln!(text, "{number}\t1\t{} {}", word(0), word(1));
    }
    text
}

fn arguments(place: &Workplace) -> Vec<String> {
    fs::write(place.snippets(), lines()).unwrap();
    let numbers = "--words 2 --held-out 21 --vocab-size 300 --width 32 --heads 2 --batch-size 16";
    let mut arguments = vec!["--data".to_owned(), place.snippets().display().to_string()];
    arguments.extend(numbers.split(' ').map(str::to_owned));
    arguments
}

/// Loss, token accuracy, exact match and lines of each epoch.
fn epochs(done: &Done) -> Vec<[f64; 4]> {
    let lines = done
        .stdout
        .lines()
        .filter(|line| line.contains("exact match"));
    lines
        .map(|line| {
            let (_, numbers) = line.split_once("loss ").unwrap();
            let numbers: Vec<f64> = numbers
                .split([' ', ','])
                .filter_map(|word| word.parse().ok())
                .collect();
            numbers.try_into().unwrap()
        })
        .collect()
}

#[test]
fn it_learns_evaluates_and_saves_a_model() {
    let place = Workplace::new();
    let curves = place.path("curves.svg");
    let done = Program::new(PROGRAM, &place.path("logs"))
        .args(arguments(&place))
        .args(["--epochs", "12"])
        .args(["--curves".as_ref(), curves.as_os_str()])
        .args(["--output".as_ref(), place.output().as_os_str()])
        .run();
    done.assert_code(0);
    let epochs = epochs(&done);
    assert_eq!(epochs.len(), 12, "{done:#?}");
    let (first, last) = (epochs[0], epochs[11]);
    assert!(
        last[0] < first[0] / 2.0,
        "the loss does not fall: {epochs:?}"
    );
    assert!(
        last[1] > 0.7 && last[1] > first[1],
        "token accuracy: {epochs:?}"
    );
    assert!(epochs.iter().all(|epoch| epoch[3] == 21.0), "{epochs:?}");
    assert_eq!(done.stdout.matches("` -> `").count(), 4, "{done:#?}");
    assert!(fs::read_to_string(&curves).unwrap().contains("exact match"));
    let files = [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ];
    assert_eq!(Workplace::files(&place.output()), files);
}

#[test]
fn two_processes_count_every_held_out_line_once() {
    let place = Workplace::new();
    let done = place
        .launch(2, &["--quiet"])
        .args([PROGRAM])
        .args(arguments(&place))
        .args(["--epochs", "1", "--max-steps", "2"])
        .run();
    done.assert_code(0);
    let epochs = epochs(&done);
    assert_eq!((epochs.len(), epochs[0][3]), (1, 21.0), "{done:#?}");
}

#[test]
fn too_few_tokens_are_told_on_every_number_of_processes() {
    let place = Workplace::new();
    for processes in [1, 2] {
        let program = match processes {
            1 => Program::new(PROGRAM, &place.path("logs")),
            _ => place.launch(2, &["--quiet"]).args([PROGRAM]),
        };
        let done = program
            .args(arguments(&place))
            .args(["--vocab-size", "100"])
            .run();
        done.assert_code(1);
        done.assert_told(&["at least 258 tokens"]);
    }
}
