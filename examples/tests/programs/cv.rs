//! Image classification: a short training on patterns that can be told apart within seconds.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use flate2::{Compression, write::GzEncoder};
use image::{Rgb, RgbImage};

use crate::process::{Done, Program};
use crate::workplace::Workplace;

const CV: &str = env!("CARGO_BIN_EXE_cv");
const PLAIN: &str = env!("CARGO_BIN_EXE_cv_plain");
const COMPLETE: &str = env!("CARGO_BIN_EXE_complete_cv");

/// How many images there are; a fifth of them is held out.
const IMAGES: usize = 150;
const HELD_OUT: usize = IMAGES / 5;
/// A network that is small enough for a test.
const SMALL: [&str; 8] = [
    "--planes",
    "8",
    "--batch-size",
    "8",
    "--epochs",
    "3",
    "--lr",
    "0.01",
];

/// Digits of 8x8 values: two bright rows say which digit it is, the rest is noise.
fn digits(folder: &Path) {
    let mut noise = 1u32;
    let mut next = || {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        noise >> 16
    };
    let file = File::create(folder.join("digits.csv.gz")).unwrap();
    let mut packed = GzEncoder::new(file, Compression::fast());
    for _ in 0..IMAGES {
        let digit = next() as usize % 10;
        let rows = [digit % 8, (digit / 8 * 3 + digit + 4) % 8];
        let values = (0..64).map(|place| match rows.contains(&(place / 8)) {
            true => 12 + next() % 5,
            false => next() % 5,
        });
        let values: Vec<String> = values.map(|value| value.to_string()).collect();
        writeln!(packed, "{},{digit}", values.join(",")).unwrap();
    }
    packed.finish().unwrap();
}

/// What a program says about an epoch.
#[derive(Debug)]
struct Epoch {
    loss: f64,
    accuracy: f64,
    images: usize,
}

/// The number behind `word` in a line.
fn after(line: &str, word: &str) -> f64 {
    let (_, rest) = line.rsplit_once(&format!("{word} ")).unwrap();
    let number = rest.split([' ', ',']).next().unwrap();
    number.parse().unwrap()
}

fn epochs(done: &Done) -> Vec<Epoch> {
    done.assert_code(0);
    let lines = done
        .stdout
        .lines()
        .filter_map(|line| line.split_once("epoch "));
    let epochs = lines.map(|(_, line)| {
        let (training, held_out) = line.split_once(", ").unwrap();
        Epoch {
            loss: after(training, "loss"),
            accuracy: after(held_out, "accuracy"),
            images: after(held_out, "on") as usize,
        }
    });
    epochs.collect()
}

#[track_caller]
fn assert_learnt(done: &Done, count: usize) {
    let epochs = epochs(done);
    assert_eq!(epochs.len(), count, "{done:#?}");
    let (first, last) = (&epochs[0], &epochs[count - 1]);
    assert!(
        last.loss < 0.7 * first.loss,
        "the loss does not fall: {done:#?}"
    );
    // Ten classes: who guesses has a tenth.
    assert!(last.accuracy > 0.4, "nothing was learnt: {done:#?}");
    for epoch in &epochs {
        let right = epoch.accuracy * HELD_OUT as f64;
        assert!((right - right.round()).abs() < 0.01, "{epoch:?}");
        assert_eq!(
            epoch.images, HELD_OUT,
            "nobody is left out or counted twice: {done:#?}"
        );
    }
}

struct Place {
    workplace: Workplace,
}

impl Place {
    fn new() -> Self {
        let workplace = Workplace::new();
        fs::create_dir(workplace.path("digits")).unwrap();
        digits(&workplace.path("digits"));
        Self { workplace }
    }

    fn path(&self, name: &str) -> String {
        self.workplace.path(name).to_str().unwrap().to_owned()
    }

    /// `program` on the digits, on some processes, with the launcher if there are several.
    fn run(&self, program: &str, processes: usize, arguments: &[&str]) -> Done {
        let start = match processes {
            1 => Program::new(program, &self.workplace.path("logs")),
            _ => self
                .workplace
                .launch(processes, &["--quiet"])
                .args([program]),
        };
        start
            .args(["--data".to_owned(), self.path("digits")])
            .args(SMALL)
            .args(arguments)
            .run()
    }
}

#[test]
fn one_process_learns_draws_and_saves_as_the_plain_program_does() {
    let place = Place::new();
    let (output, curves) = (place.path("output"), place.path("curves.svg"));
    let files = ["--output", output.as_str(), "--curves", curves.as_str()];
    let accelerated = place.run(CV, 1, &files);
    assert_learnt(&accelerated, 3);
    let drawn = fs::read_to_string(&curves).unwrap();
    for text in ["loss", "learning rate", "accuracy", "<polyline"] {
        assert!(drawn.contains(text), "`{text}` is not drawn");
    }
    let mut saved = Workplace::files(Path::new(&output));
    saved.sort();
    assert_eq!(saved, ["config.json", "model.safetensors"]);

    let plain = place.run(PLAIN, 1, &[]);
    assert_learnt(&plain, 3);
    assert_eq!(
        plain.stdout, accelerated.stdout,
        "accelerate changes what is computed"
    );
}

#[test]
fn two_processes_learn() {
    let place = Place::new();
    let curves = place.path("curves.svg");
    let done = place.run(CV, 2, &["--epochs", "6", "--curves", curves.as_str()]);
    assert_learnt(&done, 6);
    assert!(Path::new(&curves).exists());
}

#[test]
fn every_feature_at_once() {
    let place = Place::new();
    let (output, curves) = (place.path("output"), place.path("curves.svg"));
    let arguments = [
        "--batch-size",
        "4",
        "--gradient-accumulation-steps",
        "2",
        "--clip-norm",
        "5",
        "--mixed-precision",
        "bf16",
        "--sync-batch-norm",
        "--schedule",
        "cosine",
        "--warmup-steps",
        "4",
        "--crop",
        "0.9",
        "--workers",
        "2",
        "--epochs",
        "3",
        "--output",
        output.as_str(),
        "--curves",
        curves.as_str(),
        "--lr",
        "0.02",
    ];
    let done = place.run(COMPLETE, 2, &arguments);
    let epochs = epochs(&done);
    assert!(epochs[2].loss < epochs[0].loss, "{done:#?}");
    let drawn = fs::read_to_string(&curves).unwrap();
    assert!(drawn.contains("norm of the gradients"), "{drawn}");

    // What was trained is a place to begin from, here with the classifier alone.
    let more = [
        "--pretrained",
        output.as_str(),
        "--freeze",
        "--epochs",
        "1",
        "--lr",
        "0",
    ];
    let again = place.run(COMPLETE, 1, &more);
    again.assert_code(0);
    assert!(again.stdout.contains("accuracy"), "{again:#?}");
}

#[test]
fn a_folder_of_images_is_learnt_too() {
    let place = Place::new();
    let folder = place.workplace.path("images");
    for (class, colour) in [
        ("blue", [20, 30, 200]),
        ("green", [20, 200, 30]),
        ("red", [200, 30, 20]),
    ] {
        fs::create_dir_all(folder.join(class)).unwrap();
        for number in 0..20u8 {
            let shade = colour.map(|value: u8| value.saturating_add(number));
            let image = RgbImage::from_pixel(12 + u32::from(number), 10, Rgb(shade));
            let ending = if number % 2 == 0 { "png" } else { "jpg" };
            image
                .save(folder.join(class).join(format!("{number}.{ending}")))
                .unwrap();
        }
    }
    let done = Program::new(CV, &place.workplace.path("logs"))
        .args(["--data", folder.to_str().unwrap()])
        .args(SMALL)
        .run();
    let epochs = epochs(&done);
    assert!(
        epochs[2].loss < epochs[0].loss && epochs[2].images == 12,
        "{done:#?}"
    );
}

#[test]
fn what_cannot_be_is_told() {
    let place = Place::new();
    let nowhere = place.path("nowhere");
    for program in [CV, PLAIN, COMPLETE] {
        let done = place.run(program, 1, &["--data", nowhere.as_str()]);
        done.assert_code(1);
        done.assert_told(&["cannot read", "nowhere", "cargo xtask setup"]);
        let done = place.run(program, 1, &["--model", "resnet9"]);
        done.assert_code(2);
        done.assert_told(&["resnet18"]);
    }
}
