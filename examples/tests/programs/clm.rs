//! `clm`, `distributed_inference`, `pipelined_inference` and `big_model` on a small text.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Done, Program};
use crate::workplace::Workplace;

pub(crate) const CLM: &str = env!("CARGO_BIN_EXE_clm");
const INFERENCE: &str = env!("CARGO_BIN_EXE_distributed_inference");
const PIPELINE: &str = env!("CARGO_BIN_EXE_pipelined_inference");
const BIG_MODEL: &str = env!("CARGO_BIN_EXE_big_model");

/// A text in which something can be learnt: each sentence goes on as it began.
fn text() -> String {
    let sentences = [
        "the cat sat on the mat and looked at the moon . ",
        "a dog ran over the hill and barked at the sun . ",
        "the old man walked to the sea and sang of home . ",
    ];
    (0..150)
        .map(|number| sentences[(number * number + number / 7) % 3])
        .collect()
}

pub(crate) fn arguments(place: &Workplace, output: &str) -> Vec<PathBuf> {
    let data = place.path("text.txt");
    if !data.exists() {
        fs::write(&data, text()).unwrap();
    }
    let plain = "--vocab-size 300 --block-size 16 --layers 1 --width 32 --heads 2 --dropout 0 \
                 --epochs 3 --batch-size 8 --lr 0.01 --hold-out-every 8 --sample-tokens 8 \
                 --prompt the";
    let mut arguments: Vec<PathBuf> = plain.split_whitespace().map(PathBuf::from).collect();
    arguments.extend(["--data".into(), data, "--output".into(), place.path(output)]);
    arguments.extend(["--curves".into(), place.path("curves.svg")]);
    arguments
}

fn train(place: &Workplace, processes: usize, output: &str) -> Done {
    let program = match processes {
        1 => Program::new(CLM, &place.path("logs")),
        _ => place.launch(processes, &[]).args([CLM]),
    };
    let done = program.args(arguments(place, output)).run();
    done.assert_code(0);
    done
}

/// What was said, without the name of the rank that the launcher puts before each line.
fn said(done: &Done) -> String {
    let lines = done.stdout.split_inclusive('\n');
    lines
        .map(|line| line.strip_prefix("0:0 ").unwrap_or(line))
        .collect()
}

/// The number behind `name` in the line of each epoch.
fn column(done: &Done, name: &str) -> Vec<f64> {
    said(done)
        .lines()
        .filter(|line| line.starts_with("epoch "))
        .map(|line| {
            let rest = line.split_once(name).unwrap().1;
            let number: String = rest
                .trim_start()
                .chars()
                .take_while(|&character| character.is_ascii_digit() || character == '.')
                .collect();
            number.parse().unwrap()
        })
        .collect()
}

/// The tokens that `big_model` gives, which begin with what is asked for.
fn tokens(place: &Workplace, model: &Path, arguments: &[&str]) -> Vec<u64> {
    let done = Program::new(BIG_MODEL, &place.path("logs"))
        .args(["--model".as_ref(), model.as_os_str()])
        .args(["--prompt", "the old man", "--max_new_tokens", "6", "--json"])
        .args(arguments)
        .run();
    done.assert_code(0);
    let measured: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    serde_json::from_value(measured["tokens"].clone()).unwrap()
}

fn infer(
    place: &Workplace,
    processes: usize,
    model: &Path,
    (executable, arguments): (&str, &[&str]),
) -> String {
    let program = match processes {
        1 => Program::new(executable, &place.path("logs")),
        _ => place.launch(processes, &[]).args([executable]),
    };
    let prompts = place.path("prompts.txt");
    fs::write(
        &prompts,
        "the cat\na dog ran\n\nthe old man walked to\nthe\nbarked at\n",
    )
    .unwrap();
    let done = program
        .args(["--model".as_ref(), model.as_os_str()])
        .args(["--prompts".as_ref(), prompts.as_os_str()])
        .args(arguments)
        .run();
    done.assert_code(0);
    said(&done)
}

#[test]
fn a_model_is_trained_and_continues_prompts_alike_on_one_process_and_two() {
    let place = Workplace::new();
    let alone = train(&place, 1, "alone");
    let losses = column(&alone, "held-out loss");
    let perplexities = column(&alone, "perplexity");
    assert_eq!(losses.len(), 3, "{alone:#?}");
    assert!(losses[2] < losses[0] && losses[2] < 2.0, "{losses:?}");
    assert!((perplexities[2] - losses[2].exp()).abs() < 0.02);
    assert!(alone.stdout.contains("sample: the"), "{alone:#?}");
    assert!(
        fs::read_to_string(place.path("curves.svg"))
            .unwrap()
            .contains("perplexity")
    );

    let model = place.path("alone");
    assert_eq!(
        Workplace::files(&model),
        [
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.json",
        ]
    );
    let job = (
        INFERENCE,
        &["--max-new-tokens", "6", "--batch-size", "2"][..],
    );
    let (one, two) = (infer(&place, 1, &model, job), infer(&place, 2, &model, job));
    let texts = |output: &str| {
        output
            .rsplit_once("continued 5 prompts")
            .unwrap()
            .0
            .to_owned()
    };
    assert_eq!(texts(&one), texts(&two));
    assert!(one.contains("a dog ran over the"), "{one}");
    let order = [
        "the cat ",
        "a dog ran ",
        "the old man walked to ",
        "barked at ",
    ];
    let places: Vec<usize> = order.iter().map(|start| one.find(start).unwrap()).collect();
    assert!(places.is_sorted(), "{one}");

    // The same model in stages, on rows that two ranks cannot share evenly.
    let job = (PIPELINE, &["--rounds", "2"][..]);
    let (one, two) = (infer(&place, 1, &model, job), infer(&place, 2, &model, job));
    let next = |output: &str| output.split_once("\ncut ").unwrap().0.to_owned();
    assert_eq!(next(&one), next(&two));
    assert_eq!(next(&one).matches(" -> ").count(), 5, "{one}");
    assert!(one.contains("cut nowhere; 10 rows on 1 processes"), "{one}");
    assert!(two.contains("cut before transformer."), "{two}");

    // The same model with too little memory for all of it, with and without reading ahead.
    let whole = tokens(&place, &model, &[]);
    assert_eq!(whole.len(), 6);
    assert!(whole.iter().any(|token| *token != whole[0]), "{whole:?}");
    let bytes = fs::metadata(model.join("model.safetensors")).unwrap().len();
    let limit = format!("cpu={}", bytes * 4 / 5);
    for more in [&[][..], &["--no_prefetch"]] {
        let arguments = [&["--max_memory", &limit][..], more].concat();
        assert_eq!(tokens(&place, &model, &arguments), whole, "{arguments:?}");
    }
}

#[test]
fn two_processes_train_one_model() {
    let place = Workplace::new();
    let together = train(&place, 2, "together");
    let losses = column(&together, "held-out loss");
    assert!(losses[2] < losses[0] && losses[2] < 2.5, "{losses:?}");
    // Said once, not by each process.
    assert_eq!(together.stdout.matches("sample: the").count(), 1);
    assert_eq!(together.stdout.matches("epoch 3:").count(), 1);
}

#[test]
fn what_is_no_text_is_told() {
    let place = Workplace::new();
    let run = |data: &Path| {
        Program::new(CLM, &place.path("logs"))
            .args(["--data".as_ref(), data.as_os_str()])
            .run()
    };
    let missing = run(&place.path("missing.txt"));
    missing.assert_code(1);
    missing.assert_told(&["missing.txt", "cargo xtask setup"]);
    let bytes = place.path("bytes.txt");
    fs::write(&bytes, b"fine \xff").unwrap();
    run(&bytes).assert_told(&["bytes.txt", "byte 5"]);
    let short = place.path("short.txt");
    fs::write(&short, "a few words").unwrap();
    run(&short).assert_told(&["at least 20 blocks of 128 tokens, found 0"]);
}
