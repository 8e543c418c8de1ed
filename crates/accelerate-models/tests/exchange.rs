//! Folders that our models write are read by transformers without a complaint, and the other way
//! round.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use accelerate::nn::{Factory, Forward, Module};
use accelerate_models::bert::{
    BertForMaskedLM, BertForPreTraining, BertForSequenceClassification, BertForTokenClassification,
    BertInput, BertModel, BertModelInput, BertPreTrainingInput,
};
use accelerate_models::t5::{T5EncoderInput, T5EncoderModel, T5ForConditionalGeneration, T5Input};
use accelerate_models::{PretrainedConfig, PretrainedModel};
use accelerate_testkit::parity_python;
use serde_json::{Value, json};
use tch::{Kind, Tensor};

/// Relative to the largest number of the output.
const TOLERANCE: f64 = 1e-5;

/// One model on its way to Python and back.
struct Case {
    class: &'static str,
    inputs: Value,
    /// The field of the output that is compared.
    output: &'static str,
    /// Makes a model, writes it to a folder, and gives its output.
    write: Box<dyn Fn(&Path, &Value) -> Tensor>,
    /// Reads a folder, compares the weights with the first one's, and gives the output.
    read: Box<dyn Fn(&Path, &Path, &Value) -> Tensor>,
}

fn case<M: PretrainedModel>(
    class: &'static str,
    config: Value,
    inputs: Value,
    output: &'static str,
    run: fn(&M, &Value) -> Tensor,
) -> Case {
    let write = move |folder: &Path, inputs: &Value| {
        let mut config: M::Config = serde_json::from_value(config.clone()).unwrap();
        config.settle();
        let model = M::new(&config, &Factory::default()).unwrap();
        model.train(false);
        model.save_pretrained(folder).unwrap();
        tch::no_grad(|| run(&model, inputs))
    };
    let read = move |folder: &Path, first: &Path, inputs: &Value| {
        let [model, first] =
            [folder, first].map(|folder| M::from_folder(folder, &Factory::default()).unwrap());
        let pairs = model
            .named_parameters()
            .into_iter()
            .zip(first.named_parameters());
        for ((name, one), (first_name, other)) in pairs {
            assert_eq!(name, first_name);
            assert_eq!(one.tensor(), other.tensor(), "{class}: {name}");
        }
        assert_eq!(
            model.named_parameters().len(),
            first.named_parameters().len()
        );
        tch::no_grad(|| run(&model, inputs))
    };
    Case {
        class,
        inputs,
        output,
        write: Box::new(write),
        read: Box::new(read),
    }
}

/// A list of integers, or of lists of them.
fn integers(value: &Value) -> Tensor {
    let rows = value.as_array().unwrap();
    if rows.iter().all(Value::is_number) {
        let values: Vec<i64> = rows.iter().map(|number| number.as_i64().unwrap()).collect();
        return Tensor::from_slice(&values);
    }
    Tensor::stack(&rows.iter().map(integers).collect::<Vec<_>>(), 0)
}

fn flat(value: &Value, into: &mut Vec<f64>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| flat(item, into)),
        number => into.push(number.as_f64().unwrap()),
    }
}

#[track_caller]
fn assert_near(class: &str, found: &Tensor, expected: &Tensor) {
    let largest = expected.abs().max().double_value(&[]);
    let error = (found.to_kind(Kind::Double).flatten(0, -1) - expected).abs();
    let error = error.max().double_value(&[]) / largest;
    assert!(error < TOLERANCE, "{class}: off by {error:e} of {largest}");
}

fn bert(config: Value) -> Value {
    let mut all = json!({
        "vocab_size": 24, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 32, "max_position_embeddings": 12,
    });
    all.as_object_mut()
        .unwrap()
        .extend(config.as_object().unwrap().clone());
    all
}

fn bert_batch(inputs: &Value) -> BertInput {
    BertInput {
        input_ids: integers(&inputs["input_ids"]),
        attention_mask: Some(integers(&inputs["attention_mask"])),
        token_type_ids: None,
        labels: None,
    }
}

fn bert_cases() -> Vec<Case> {
    let text = json!({
        "input_ids": [[2, 5, 17, 9, 3], [2, 14, 3, 0, 0]],
        "attention_mask": [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]],
    });
    let labels = json!({"id2label": {"0": "bad", "1": "fair", "2": "good"}});
    vec![
        case::<BertModel>(
            "BertModel",
            bert(json!({})),
            text.clone(),
            "last_hidden_state",
            |model, inputs| {
                let batch = bert_batch(inputs);
                let input = BertModelInput {
                    input_ids: batch.input_ids,
                    attention_mask: batch.attention_mask,
                    token_type_ids: None,
                };
                model.call(input).unwrap().last_hidden_state
            },
        ),
        case::<BertForSequenceClassification>(
            "BertForSequenceClassification",
            bert(labels.clone()),
            text.clone(),
            "logits",
            |model, inputs| model.call(bert_batch(inputs)).unwrap().logits,
        ),
        case::<BertForTokenClassification>(
            "BertForTokenClassification",
            bert(labels),
            text.clone(),
            "logits",
            |model, inputs| model.call(bert_batch(inputs)).unwrap().logits,
        ),
        case::<BertForMaskedLM>(
            "BertForMaskedLM",
            bert(json!({})),
            text.clone(),
            "logits",
            |model, inputs| model.call(bert_batch(inputs)).unwrap().logits,
        ),
        case::<BertForMaskedLM>(
            "BertForMaskedLM",
            bert(json!({"tie_word_embeddings": false})),
            text.clone(),
            "logits",
            |model, inputs| model.call(bert_batch(inputs)).unwrap().logits,
        ),
        case::<BertForPreTraining>(
            "BertForPreTraining",
            bert(json!({})),
            text,
            "prediction_logits",
            |model, inputs| {
                let batch = bert_batch(inputs);
                let input = BertPreTrainingInput {
                    input_ids: batch.input_ids,
                    attention_mask: batch.attention_mask,
                    token_type_ids: None,
                    labels: None,
                    next_sentence_label: None,
                };
                model.call(input).unwrap().prediction_logits
            },
        ),
    ]
}

fn t5_run(model: &T5ForConditionalGeneration, inputs: &Value) -> Tensor {
    let input = T5Input {
        input_ids: Some(integers(&inputs["input_ids"])),
        attention_mask: Some(integers(&inputs["attention_mask"])),
        decoder_input_ids: Some(integers(&inputs["decoder_input_ids"])),
        ..T5Input::default()
    };
    model.call(input).unwrap().logits
}

fn t5_cases() -> Vec<Case> {
    let config = |kind: &str| {
        json!({
            "vocab_size": 24, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_heads": 2,
            "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12,
            "decoder_start_token_id": 0, "feed_forward_proj": kind,
        })
    };
    let text = json!({
        "input_ids": [[5, 17, 9, 3, 1], [14, 3, 1, 0, 0]],
        "attention_mask": [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]],
    });
    let mut both = text.clone();
    both["decoder_input_ids"] = json!([[0, 4, 9], [0, 11, 2]]);
    let scaled = |scale: bool| {
        let mut config = config("gated-gelu");
        config["scale_decoder_outputs"] = scale.into();
        config
    };
    vec![
        case(
            "T5ForConditionalGeneration",
            config("relu"),
            both.clone(),
            "logits",
            t5_run,
        ),
        case(
            "T5ForConditionalGeneration",
            scaled(true),
            both.clone(),
            "logits",
            t5_run,
        ),
        case(
            "T5ForConditionalGeneration",
            scaled(false),
            both,
            "logits",
            t5_run,
        ),
        case::<T5EncoderModel>(
            "T5EncoderModel",
            config("relu"),
            text,
            "last_hidden_state",
            |model, inputs| {
                let input = T5EncoderInput {
                    input_ids: integers(&inputs["input_ids"]),
                    attention_mask: Some(integers(&inputs["attention_mask"])),
                };
                model.call(input).unwrap()
            },
        ),
    ]
}

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
    let mut cases = bert_cases();
    cases.extend(t5_cases());
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
