//! The real MiniLM, where `cargo xtask setup` put it, against numbers recorded from transformers.
#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::print_stdout, reason = "a skipped test says so")]

use std::path::{Path, PathBuf};

use accelerate::nn::{Factory, Forward};
use accelerate_models::bert::{BertModel, BertModelInput};
use accelerate_models::sentence::SentenceEncoder;
use accelerate_models::{Encoding, Error, PretrainedModel, TextTokenizer};
use serde_json::Value;
use tch::{Kind, Tensor};

/// The model and the recording, or a line that says why the test does not run.
fn minilm() -> Option<(PathBuf, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join(".data/minilm");
    if !folder.join("model.safetensors").exists() {
        println!(
            "skipped: no `{}`; run `cargo xtask setup`",
            folder.display()
        );
        return None;
    }
    let recorded = std::fs::read(root.join("tests/parity/fixtures/minilm_forward.json")).unwrap();
    Some((folder, serde_json::from_slice(&recorded).unwrap()))
}

fn integers(value: &Value) -> Vec<i64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|number| number.as_i64().unwrap())
        .collect()
}

#[test]
fn token_ids_are_those_of_the_original() {
    let Some((folder, recorded)) = minilm() else {
        return;
    };
    let tokenizer = TextTokenizer::from_folder(folder).unwrap();
    let max_length = recorded["max_length"].as_u64().unwrap() as usize;
    for case in recorded["tokenizer"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let encoding = tokenizer.encode(text, max_length).unwrap();
        assert_eq!(encoding.ids, integers(&case["input_ids"]), "{text}");
        assert_eq!(encoding.attention_mask, vec![1; encoding.ids.len()]);
    }
}

#[test]
fn texts_are_cut_and_padded() {
    let Some((folder, _)) = minilm() else { return };
    let tokenizer = TextTokenizer::from_folder(folder).unwrap();
    let texts = ["a good film that is far too long", "good"];
    let padded = tokenizer.encode_batch(&texts, 5).unwrap();
    assert_eq!(padded[0].ids.len(), 5);
    assert_eq!(
        padded[0].ids.last(),
        padded[1].ids.get(2),
        "the last token is the separator"
    );
    assert_eq!(
        (&padded[1].ids[3..], &padded[1].attention_mask[..]),
        (&[0, 0][..], &[1, 1, 1, 0, 0][..])
    );
    let each = tokenizer.encode_each(&texts, 5).unwrap();
    assert_eq!(each[1].ids.len(), 3);
    let batch = tokenizer
        .batch(&each.iter().collect::<Vec<&Encoding>>())
        .unwrap();
    let rows: Vec<i64> = Vec::try_from(batch.input_ids.get(1)).unwrap();
    assert_eq!(rows, padded[1].ids);
    assert!(matches!(
        tokenizer.encode("good", 2),
        Err(Error::NoRoom {
            max_length: 2,
            special: 2
        })
    ));
}

#[test]
fn hidden_states_are_those_of_the_original() {
    let Some((folder, recorded)) = minilm() else {
        return;
    };
    let model = BertModel::from_folder(&folder, &Factory::default()).unwrap();
    let cases = recorded["forward"].as_array().unwrap();
    let stack = |key: &str| {
        let rows: Vec<Tensor> = cases
            .iter()
            .map(|case| Tensor::from_slice(&integers(&case[key])))
            .collect();
        Tensor::stack(&rows, 0)
    };
    let attention_mask = stack("attention_mask");
    let input = BertModelInput {
        input_ids: stack("input_ids"),
        attention_mask: Some(attention_mask.shallow_clone()),
        token_type_ids: None,
    };
    let output = tch::no_grad(|| model.call(input)).unwrap();
    let pooled = output.pooler_output.unwrap();
    for (row, case) in cases.iter().enumerate() {
        let row = row as i64;
        for (key, vector) in [
            ("hidden_first_16", output.last_hidden_state.get(row).get(0)),
            ("pooled_first_16", pooled.get(row)),
        ] {
            for (column, expected) in case[key].as_array().unwrap().iter().enumerate() {
                let (found, expected) = (
                    vector.double_value(&[column as i64]),
                    expected.as_f64().unwrap(),
                );
                assert!(
                    (found - expected).abs() < 1e-5,
                    "{key} {row} {column}: {found} {expected}"
                );
            }
        }
        let kept = output.last_hidden_state.get(row) * attention_mask.get(row).unsqueeze(-1);
        let (found, expected) = (
            kept.sum(Kind::Double).double_value(&[]),
            case["hidden_sum"].as_f64().unwrap(),
        );
        assert!((found - expected).abs() < 1e-3, "{row}: {found} {expected}");
    }
}

#[test]
fn sentence_vectors_are_those_of_the_original() {
    let Some((folder, recorded)) = minilm() else {
        return;
    };
    let encoder = SentenceEncoder::from_folder(&folder, &Factory::default()).unwrap();
    let cases = recorded["forward"].as_array().unwrap();
    let texts: Vec<&str> = cases
        .iter()
        .map(|case| case["text"].as_str().unwrap())
        .collect();
    let vectors = encoder.encode(&texts).unwrap();
    assert_eq!(vectors.size(), [3, 384]);
    let alike = vectors.matmul(&vectors.tr());
    for (key, found) in [("vectors", &vectors), ("similarity", &alike)] {
        for (row, expected) in recorded["embeddings"][key]
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
        {
            for (column, expected) in expected.as_array().unwrap().iter().enumerate() {
                let found = found.double_value(&[row as i64, column as i64]);
                let expected = expected.as_f64().unwrap();
                assert!(
                    (found - expected).abs() < 1e-5,
                    "{key} {row} {column}: {found} {expected}"
                );
            }
        }
    }
    // Alone, without padding, a text has the same vector; and it is cut where that is asked for.
    let alone = encoder.encode(&texts[..1]).unwrap();
    assert!(
        (alone.get(0) - vectors.get(0))
            .abs()
            .max()
            .double_value(&[])
            < 1e-5
    );
    let short = encoder.with_max_length(3);
    let same = short.encode(&["a film", "a play"]).unwrap();
    assert!((same.get(0) - same.get(1)).abs().max().double_value(&[]) < 1e-6);
}

#[test]
fn a_folder_without_tokenizer_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let error = TextTokenizer::from_folder(folder.path()).unwrap_err();
    assert!(error.to_string().contains("tokenizer.json"), "{error}");
}
