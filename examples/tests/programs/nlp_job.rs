//! The whole job: training, evaluation, a model that can be used again.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::process::{Done, Program};
use crate::workplace::{HELD_OUT, SNIPPETS, Workplace, nlp};

/// Samples in a step of all processes together.
const BATCH: usize = 4;
const EPOCHS: usize = 8;

/// One line about one epoch.
#[derive(Debug)]
struct Epoch {
    accuracy: f64,
    f1: f64,
    samples: usize,
}

/// Reads `epoch N: accuracy X, F1 Y on Z held-out snippets, T s` of every epoch.
fn epochs(done: &Done) -> Vec<Epoch> {
    let lines = done
        .stdout
        .lines()
        .filter_map(|line| line.split_once("epoch "));
    lines
        .enumerate()
        .map(|(index, (_, line))| {
            let words: Vec<_> = line
                .split([' ', ',', ':'])
                .filter(|word| !word.is_empty())
                .collect();
            assert_eq!(words[0], (index + 1).to_string(), "{line}");
            assert_eq!((words[1], words[3]), ("accuracy", "F1"), "{line}");
            let number = |word: &str| word.parse::<f64>().unwrap();
            Epoch {
                accuracy: number(words[2]),
                f1: number(words[4]),
                samples: words[6].parse().unwrap(),
            }
        })
        .collect()
}

/// What `--bench-json` writes.
#[derive(Debug, Deserialize)]
struct Measured {
    first_step_s: f64,
    step_s: Vec<f64>,
    peak_rss_bytes: Option<u64>,
    losses: Vec<f64>,
}

fn measured(place: &Workplace, rank: usize) -> Measured {
    let path = place.path(&format!("bench.rank{rank}.json"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// A job that learns to tell the two kinds of snippets apart, on some processes.
fn whole_job(place: &Workplace, processes: usize) -> Done {
    let done = place
        .launch_nlp(processes, &["--quiet"])
        .args(["--epochs", &EPOCHS.to_string()])
        .args(["--batch-size", &(BATCH / processes).to_string()])
        .args(["--output".as_ref(), place.output().as_os_str()])
        .args(["--bench-json".as_ref(), place.path("bench").as_os_str()])
        .run();
    done.assert_code(0);
    done
}

fn check_job(place: &Workplace, done: &Done, processes: usize) {
    let epochs = epochs(done);
    assert_eq!(epochs.len(), EPOCHS, "{done:#?}");
    for epoch in &epochs {
        assert_eq!(
            epoch.samples, HELD_OUT,
            "nobody is left out or counted twice: {done:#?}"
        );
        let right = epoch.accuracy * HELD_OUT as f64;
        assert!(
            (right - right.round()).abs() < 1e-3,
            "{epoch:?} is no share of {HELD_OUT}"
        );
        assert!((0.0..=1.0).contains(&epoch.f1), "{epoch:?}");
    }
    let last = epochs.last().unwrap();
    assert!(
        last.accuracy > 0.99 && last.f1 > 0.99,
        "nothing was learnt: {done:#?}"
    );

    let steps = (SNIPPETS - HELD_OUT).div_ceil(BATCH) * EPOCHS;
    for rank in 0..processes {
        let measured = measured(place, rank);
        assert_eq!(
            (measured.losses.len(), measured.step_s.len()),
            (steps, steps)
        );
        assert!(measured.first_step_s > 0.0 && measured.step_s.iter().all(|&time| time > 0.0));
        assert!(
            measured.peak_rss_bytes.is_none_or(|bytes| bytes > 1 << 20),
            "{measured:?}"
        );
        let (first, last) = (measured.losses[0], measured.losses[steps - 1]);
        assert!(
            last < first / 2.0,
            "rank {rank}: the loss went from {first} to {last}"
        );
    }
    assert!(!place.path(&format!("bench.rank{processes}.json")).exists());
}

/// The output is a model folder like the one that was put in, and serves as such.
fn check_output(place: &Workplace) {
    let files = ["config.json", "model.safetensors", "tokenizer.json"];
    assert_eq!(Workplace::files(&place.output()), files);
    let read = |folder: &Path, file: &str| fs::read(folder.join(file)).unwrap();
    assert!(
        read(&place.model(), "tokenizer.json") == read(&place.output(), "tokenizer.json"),
        "the tokenizer was changed"
    );
    let config = |folder: &Path| -> serde_json::Map<String, Value> {
        serde_json::from_slice(&read(folder, "config.json")).unwrap()
    };
    let written = config(&place.output());
    for (key, value) in config(&place.model()) {
        // Labels have names now, and with them the number of labels.
        let kept = written.get(&key).or(Some(&value));
        assert_eq!(kept, Some(&value), "`{key}` was changed");
    }
    assert_eq!(
        written["architectures"],
        json!(["BertForSequenceClassification"])
    );
    assert_eq!(written["id2label"], json!({"0": "LABEL_0", "1": "LABEL_1"}));
    let arguments = [
        "--epochs",
        "1",
        "--lr",
        "0",
        "--held-out",
        "7",
        "--batch-size",
        "4",
    ];
    let again = Program::new(nlp(), &place.path("logs"))
        .args(["--model".as_ref(), place.output().as_os_str()])
        .args(["--data".as_ref(), place.snippets().as_os_str()])
        .args(["--max-length", "16"])
        .args(arguments)
        .run();
    again.assert_code(0);
    assert!(
        !again.stderr.contains("new and need training"),
        "the head is lost: {again:#?}"
    );
    assert!(
        epochs(&again)[0].accuracy > 0.99,
        "it is not the trained model: {again:#?}"
    );
}

#[test]
fn one_process_learns_evaluates_and_saves() {
    let place = Workplace::new();
    let done = whole_job(&place, 1);
    check_job(&place, &done, 1);
    assert_eq!(
        done.stdout.matches("saved the model").count(),
        1,
        "{done:#?}"
    );
    check_output(&place);
}

#[test]
fn two_processes_learn_evaluate_and_save() {
    let place = Workplace::new();
    let done = whole_job(&place, 2);
    check_job(&place, &done, 2);
    assert_eq!(
        done.stdout.matches("saved the model").count(),
        1,
        "{done:#?}"
    );
    check_output(&place);
}

#[test]
fn the_same_seed_gives_the_same_losses_and_ranks_see_different_samples() {
    let runs: Vec<_> = (0..2)
        .map(|_| {
            let place = Workplace::new();
            let bench = place.path("bench");
            let program = place.launch_nlp(2, &["--quiet"]).args(["--max-steps", "3"]);
            program
                .args(["--bench-json".as_ref(), bench.as_os_str()])
                .run()
                .assert_code(0);
            [measured(&place, 0).losses, measured(&place, 1).losses]
        })
        .collect();
    assert_eq!(runs[0], runs[1]);
    assert_eq!(runs[0][0].len(), 3);
    assert_ne!(
        runs[0][0], runs[0][1],
        "both ranks train on the same samples"
    );
}

#[test]
fn two_processes_see_every_sample_once_as_one_does() {
    // Without learning, the loss of a sample is the same in every batch.
    let [one, two] = [1, 2].map(|processes| {
        let place = Workplace::new();
        let program = place
            .launch_nlp(processes, &["--quiet"])
            // As many samples as fill all batches.
            .args(["--lr", "0", "--held-out", "8"])
            .args(["--batch-size", &(BATCH / processes).to_string()])
            .args(["--bench-json".as_ref(), place.path("bench").as_os_str()]);
        program.run().assert_code(0);
        let losses: Vec<f64> = (0..processes)
            .flat_map(|rank| measured(&place, rank).losses)
            .collect();
        assert_eq!(losses.len(), processes * (SNIPPETS - 8) / BATCH);
        losses.iter().sum::<f64>() / losses.len() as f64
    });
    assert!((one - two).abs() < 1e-5, "mean losses {one} and {two}");
}

#[test]
fn the_output_may_be_the_folder_of_the_model() {
    let place = Workplace::new();
    let tokenizer = fs::read(place.path("model/tokenizer.json")).unwrap();
    let before = fs::read(place.weights()).unwrap();
    let done = place
        .nlp()
        .args(["--output".as_ref(), place.model().as_os_str()])
        .run();
    done.assert_code(0);
    assert!(fs::read(place.path("model/tokenizer.json")).unwrap() == tokenizer);
    assert!(
        fs::read(place.weights()).unwrap() != before,
        "nothing was saved"
    );
    place.nlp().run().assert_code(0);
}

#[test]
fn only_the_first_rank_of_the_machine_draws_a_progress_bar() {
    let place = Workplace::new();
    let (mut ours, theirs) = terminal();
    let keep = theirs.try_clone().unwrap();
    let running = place.launch_nlp(2, &["--quiet"]).stderr(theirs).start();
    let screen = std::thread::spawn(move || {
        let mut screen = Vec::new();
        // A terminal ends with an error once its last user is gone.
        let _ = ours.read_to_end(&mut screen);
        String::from_utf8_lossy(&screen).into_owned()
    });
    running.wait().assert_code(0);
    drop(keep);
    let screen = screen.join().unwrap();
    // Between two returns stands one picture of a bar.
    let mut pictures = BTreeMap::new();
    for picture in screen
        .split(['\r', '\n'])
        .filter(|picture| picture.contains("epoch 1/1"))
    {
        let position = picture.split_whitespace().find(|word| word.ends_with("/7"));
        *pictures
            .entry(position.unwrap_or_default().to_owned())
            .or_insert(0) += 1;
    }
    assert!(pictures.contains_key("7/7"), "no full bar: {screen:?}");
    assert!(
        screen.contains("loss ") && screen.contains("samples/s"),
        "{screen:?}"
    );
    assert!(
        !screen.contains("0:1 "),
        "the second rank wrote too: {screen:?}"
    );
}

#[test]
fn output_that_is_no_terminal_stays_free_of_bars() {
    let place = Workplace::new();
    let done = place.nlp().run();
    done.assert_code(0);
    assert_eq!(done.stderr, "");
}

/// Both ends of a pseudo terminal.
fn terminal() -> (fs::File, fs::File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let size = rustix::termios::Winsize {
        ws_row: 40,
        ws_col: 150,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&ours, size).unwrap();
    let theirs = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(name)
        .unwrap();
    (ours.into(), theirs)
}
