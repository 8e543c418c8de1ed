//! BERT against the numbers that `tests/parity` recorded from transformers.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};

use accelerate::nn::{Factory, Forward, Module};
use accelerate_models::bert::{BertConfig, BertForSequenceClassification, BertInput, BertModel};
use accelerate_models::{Error, PretrainedConfig, PretrainedModel};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/fixtures")
}

fn recorded(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(fixtures().join(name)).unwrap()).unwrap()
}

/// A model folder with the tiny model of the recording.
fn tiny_folder(recorded: &Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("config.json"),
        recorded["model"].to_string(),
    )
    .unwrap();
    std::fs::copy(
        fixtures().join("bert_tiny.safetensors"),
        folder.path().join("model.safetensors"),
    )
    .unwrap();
    folder
}

fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|number| number.as_f64().unwrap())
        .collect()
}

/// A list of numbers, or of lists of them, as int64.
fn integers(value: &Value) -> Tensor {
    let rows = value.as_array().unwrap();
    if rows.iter().all(Value::is_number) {
        let values: Vec<i64> = rows.iter().map(|number| number.as_i64().unwrap()).collect();
        return Tensor::from_slice(&values);
    }
    Tensor::stack(&rows.iter().map(integers).collect::<Vec<_>>(), 0)
}

fn input(batch: &Value) -> BertInput {
    BertInput {
        input_ids: integers(&batch["input_ids"]),
        attention_mask: Some(integers(&batch["attention_mask"])),
        token_type_ids: batch.get("token_type_ids").map(integers),
        labels: Some(integers(&batch["labels"])),
    }
}

fn relative(found: f64, expected: f64) -> f64 {
    (found - expected).abs() / expected.abs().max(1e-12)
}

#[test]
fn names_and_shapes_are_those_of_transformers() {
    let recorded = recorded("bert_finetune.json");
    let folder = tiny_folder(&recorded);
    let model =
        BertForSequenceClassification::from_folder(folder.path(), &Factory::default()).unwrap();
    let found: serde_json::Map<String, Value> = model
        .named_parameters()
        .into_iter()
        .map(|(name, parameter)| (name, parameter.shape().into()))
        .collect();
    assert_eq!(Value::from(found), recorded["parameters"]);
    assert!(!model.is_training());
    let modules = model.named_modules();
    let class = |name: &str| {
        modules
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, module)| module.class_name())
    };
    for (name, expected) in [
        ("", "BertForSequenceClassification"),
        ("bert", "BertModel"),
        ("bert.encoder.layer", "ModuleList"),
        ("bert.encoder.layer.2", "BertLayer"),
        ("bert.encoder.layer.0.attention.self", "BertSelfAttention"),
        (
            "bert.encoder.layer.0.intermediate.intermediate_act_fn",
            "GELUActivation",
        ),
        ("bert.pooler.activation", "Tanh"),
    ] {
        assert_eq!(class(name), Some(expected), "{name}");
    }
    assert_eq!(modules.len(), 15 + 18 * 3);
}

#[test]
fn first_step_is_that_of_transformers() {
    let recorded = recorded("bert_finetune.json");
    let folder = tiny_folder(&recorded);
    let model =
        BertForSequenceClassification::from_folder(folder.path(), &Factory::default()).unwrap();
    model.train(true);
    let rank = &recorded["runs"][0]["ranks"][0];
    let output = model.call(input(&recorded["batches"][0][0])).unwrap();
    let loss = output.loss.unwrap();
    assert!(relative(loss.double_value(&[]), rank["losses"][0].as_f64().unwrap()) < 1e-6);
    for (row, expected) in rank["first_logits"].as_array().unwrap().iter().enumerate() {
        for (column, expected) in numbers(expected).into_iter().enumerate() {
            let found = output.logits.double_value(&[row as i64, column as i64]);
            assert!(
                (found - expected).abs() < 1e-6,
                "{row} {column}: {found} {expected}"
            );
        }
    }
    loss.f_backward().unwrap();
    for (name, parameter) in model.named_parameters() {
        let norm = parameter
            .tensor()
            .grad()
            .to_kind(Kind::Double)
            .norm()
            .double_value(&[]);
        let expected = recorded["first_grad_norms"][&name].as_f64().unwrap();
        assert!(
            (norm - expected).abs() < 1e-6 + 1e-5 * expected,
            "{name}: {norm} {expected}"
        );
    }
}

#[test]
fn a_bare_checkpoint_gets_a_new_head() {
    let recorded = recorded("bert_finetune.json");
    let whole = tiny_folder(&recorded);
    let bare = tempfile::tempdir().unwrap();
    std::fs::copy(
        whole.path().join("config.json"),
        bare.path().join("config.json"),
    )
    .unwrap();
    // The classifier of the whole model has no place in the bare one.
    BertModel::from_folder(whole.path(), &Factory::default()).unwrap();

    let config = BertConfig::from_folder(bare.path()).unwrap();
    let model = BertModel::new(&config, &Factory::default()).unwrap();
    model.save_pretrained(bare.path()).unwrap();
    let config = config.with_num_labels(3);
    let factory = Factory::default();
    let classifier =
        BertForSequenceClassification::with_weights_of(bare.path(), &config, &factory).unwrap();
    let named = classifier.named_parameters();
    let find = |name: &str| {
        named
            .iter()
            .find(|(other, _)| other == name)
            .unwrap()
            .1
            .dense()
            .unwrap()
    };
    assert_eq!(find("bert.pooler.dense.weight"), {
        let bare = model.named_parameters();
        bare.iter()
            .find(|(name, _)| name == "pooler.dense.weight")
            .unwrap()
            .1
            .dense()
            .unwrap()
    });
    assert_eq!(
        find("classifier.bias")
            .abs()
            .sum(Kind::Float)
            .double_value(&[]),
        0.0
    );
    let std = find("classifier.weight").std(true).double_value(&[]);
    assert!((0.01..0.03).contains(&std), "{std}");
}

#[test]
fn what_does_not_fit_is_told_at_once() {
    let recorded = recorded("bert_finetune.json");
    let folder = tiny_folder(&recorded);
    let mut config = recorded["model"].clone();
    config["num_hidden_layers"] = 2.into();
    config["vocab_size"] = 95.into();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let error =
        BertForSequenceClassification::from_folder(folder.path(), &Factory::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("16 unexpected"), "{text}");
    assert!(
        text.contains(
            "`bert.embeddings.word_embeddings.weight` (expected [95, 64], found [96, 64])"
        ),
        "{text}"
    );
    assert!(text.contains(folder.path().to_str().unwrap()), "{text}");

    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let error =
        BertForSequenceClassification::from_folder(folder.path(), &Factory::default()).unwrap_err();
    assert!(error.to_string().contains("no weights in"), "{error}");
    std::fs::remove_file(folder.path().join("config.json")).unwrap();
    let error =
        BertForSequenceClassification::from_folder(folder.path(), &Factory::default()).unwrap_err();
    assert!(matches!(error, Error::Read { .. }), "{error}");
}

#[test]
fn inputs_that_do_not_fit_are_told() {
    let model = BertForSequenceClassification::new(&small(), &Factory::default()).unwrap();
    let ids = |shape: &[i64]| Tensor::zeros(shape, (Kind::Int64, Device::Cpu));
    let run = |input_ids: Tensor, attention_mask: Option<Tensor>| {
        let output = model.call(BertInput {
            input_ids,
            attention_mask,
            token_type_ids: None,
            labels: None,
        });
        output.unwrap_err().to_string()
    };
    assert!(run(ids(&[1, 13]), None).contains("at most 12 tokens"));
    assert!(run(ids(&[5]), None).contains("[batch, tokens]"));
    assert!(run(ids(&[2, 5]), Some(ids(&[2, 4]))).contains("found [2, 4]"));
}

#[test]
fn losses_follow_the_labels() {
    let run = |labels: Tensor, num_labels: usize| {
        let config = small().with_num_labels(num_labels).without_dropout();
        let model = BertForSequenceClassification::new(&config, &Factory::default()).unwrap();
        let input_ids = Tensor::zeros([2, 3], (Kind::Int64, Device::Cpu));
        let input = BertInput {
            input_ids,
            attention_mask: None,
            token_type_ids: None,
            labels: Some(labels),
        };
        let output = model.call(input).unwrap();
        (output.loss.unwrap().double_value(&[]), output.logits)
    };
    let (loss, logits) = run(Tensor::from_slice(&[1.0f32, 2.0]), 1);
    let expected = (logits.squeeze() - Tensor::from_slice(&[1.0f32, 2.0]))
        .square()
        .mean(Kind::Float);
    assert!((loss - expected.double_value(&[])).abs() < 1e-6);
    let (loss, logits) = run(Tensor::from_slice(&[1i32, 0]), 3);
    let log = logits.log_softmax(-1, Kind::Float);
    let expected = -(log.double_value(&[0, 1]) + log.double_value(&[1, 0])) / 2.0;
    assert!((loss - expected).abs() < 1e-6);
    let (loss, logits) = run(Tensor::zeros([2, 3], (Kind::Float, Device::Cpu)), 3);
    let expected = logits.exp().log1p().mean(Kind::Float).double_value(&[]);
    assert!((loss - expected).abs() < 1e-6);
}

fn small() -> BertConfig {
    let json = r#"{"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
                   "intermediate_size": 16, "max_position_embeddings": 12}"#;
    serde_json::from_str(json).unwrap()
}
