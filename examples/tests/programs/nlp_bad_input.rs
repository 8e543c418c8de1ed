//! Wrong files and wrong arguments: the thing and the remedy are named, and nothing is left behind.

use std::fs;

use serde_json::{Value, json};

use crate::process::{Done, with_argument};
use crate::workplace::Workplace;

/// Runs the job in a process of its own; it has to fail before it writes anything.
#[track_caller]
fn refused(place: &Workplace, arguments: &[&str]) -> Done {
    let done = place
        .nlp()
        .args(["--output".as_ref(), place.output().as_os_str()])
        .args(arguments)
        .run();
    check_refusal(place, &done);
    done
}

#[track_caller]
fn check_refusal(place: &Workplace, done: &Done) {
    let code = done.status.code();
    assert!(matches!(code, Some(1 | 2)), "no orderly failure: {done:#?}");
    assert!(!done.stderr.contains("panicked"), "{done:#?}");
    assert_eq!(
        done.stdout.matches("epoch ").count(),
        0,
        "it trained first: {done:#?}"
    );
    let left = Workplace::files(&place.output());
    assert!(left.is_empty(), "left in the output folder: {left:?}");
}

/// As [`refused`], on two processes under the launcher.
#[track_caller]
fn refused_on_two(place: &Workplace) -> Done {
    let done = place
        .launch_nlp(2, &["--grace_period", "5"])
        .args(["--output".as_ref(), place.output().as_os_str()])
        .run();
    check_refusal(place, &done);
    let named = done.stderr.matches("`nlp` failed on rank ").count();
    assert_eq!(named, 1, "not one rank is named: {done:#?}");
    let left = with_argument(place.path("").to_str().unwrap());
    assert!(left.is_empty(), "processes left behind: {left:?}");
    done
}

#[test]
fn missing_weights() {
    let place = Workplace::new();
    fs::remove_file(place.weights()).unwrap();
    let folder = place.model();
    refused(&place, &[]).assert_told(&[folder.to_str().unwrap(), "`model.safetensors`"]);
    refused_on_two(&place).assert_told(&["`model.safetensors`"]);
}

#[test]
fn a_model_folder_that_is_not_there() {
    let place = Workplace::new();
    fs::remove_dir_all(place.model()).unwrap();
    refused(&place, &[]).assert_told(&[place.model().to_str().unwrap(), "tokenizer.json"]);
}

#[test]
fn damaged_weights() {
    let place = Workplace::new();
    let whole = fs::read(place.weights()).unwrap();
    let path = place.weights();
    let damages: [(&[u8], &[&str]); 5] = [
        (
            &whole[..whole.len() - 100],
            &["bytes of data", "download or copy"],
        ),
        (&whole[..300], &["header needs", "download or copy"]),
        (&whole[..3], &["at least 8 bytes", "download or copy"]),
        (b"", &["at least 8 bytes"]),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            &["git lfs pull"],
        ),
    ];
    for (content, told) in damages {
        fs::write(&path, content).unwrap();
        let done = refused(&place, &[]);
        done.assert_told(&[path.to_str().unwrap()]);
        done.assert_told(told);
    }
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    refused_on_two(&place).assert_told(&[path.to_str().unwrap(), "download or copy"]);
}

#[test]
fn weights_of_an_unknown_data_type() {
    let place = Workplace::new();
    let mut content = fs::read(place.weights()).unwrap();
    let at = content
        .windows(5)
        .position(|bytes| bytes == b"\"F32\"")
        .unwrap();
    content[at + 1..at + 4].copy_from_slice(b"Q77");
    fs::write(place.weights(), content).unwrap();
    let path = place.weights();
    let done = refused(&place, &[]);
    done.assert_told(&[path.to_str().unwrap(), "`Q77`", "`F32`", "convert it"]);
}

#[test]
fn everything_that_does_not_fit_is_listed_at_once() {
    let place = Workplace::new();
    place.change_weights(|tensor| match tensor.name.as_str() {
        "bert.pooler.dense.bias" => tensor.name = "bert.pooler.stray.bias".into(),
        "bert.embeddings.LayerNorm.weight" => tensor.name = "bert.embeddings.norm.weight".into(),
        "bert.pooler.dense.weight" => tensor.shape = vec![32, 128],
        "bert.embeddings.token_type_embeddings.weight" => {
            tensor.shape = vec![1, 64];
            tensor.bytes.truncate(64 * 4);
        }
        _ => {}
    });
    let told = [
        "2 missing: ",
        "`bert.pooler.dense.bias`",
        "`bert.embeddings.LayerNorm.weight`",
        "2 unexpected: ",
        "`bert.pooler.stray.bias`",
        "`bert.embeddings.norm.weight`",
        "2 mismatched: ",
        "`bert.pooler.dense.weight` (expected [64, 64], found [32, 128])",
        "`bert.embeddings.token_type_embeddings.weight` (expected [2, 64], found [1, 64])",
        "check that the configuration belongs to these weights",
    ];
    refused(&place, &[]).assert_told(&told);
    refused_on_two(&place).assert_told(&told);
}

#[test]
fn a_configuration_that_cannot_be_built() {
    let place = Workplace::new();
    place.set_config("hidden_act", json!("gelu_10"));
    refused(&place, &[]).assert_told(&["config.json", "`hidden_act`", "`gelu_10`", "`gelu`"]);

    let place = Workplace::new();
    place.set_config("model_type", json!("roberta"));
    let told = ["config.json", "`model_type` `roberta`", "one of `bert`, "];
    refused(&place, &[]).assert_told(&told);

    let place = Workplace::new();
    place.set_config("model_type", json!("gpt2"));
    let told = ["config.json", "`model_type` `bert`, found `gpt2`"];
    refused(&place, &[]).assert_told(&told);

    let place = Workplace::new();
    let path = place.path("model/config.json");
    fs::write(&path, "{\"hidden_size\": 64,").unwrap();
    refused(&place, &[]).assert_told(&[path.to_str().unwrap(), "line 1"]);
    fs::remove_file(&path).unwrap();
    refused(&place, &[]).assert_told(&[path.to_str().unwrap()]);
}

#[test]
fn a_damaged_tokenizer() {
    let place = Workplace::new();
    let path = place.path("model/tokenizer.json");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    refused(&place, &[]).assert_told(&[path.to_str().unwrap(), "save_pretrained"]);
    refused_on_two(&place).assert_told(&[path.to_str().unwrap(), "save_pretrained"]);
    fs::remove_file(&path).unwrap();
    refused(&place, &[]).assert_told(&[path.to_str().unwrap()]);
}

#[test]
fn a_tokenizer_with_more_tokens_than_the_model() {
    let place = Workplace::new();
    let path = place.path("model/tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for id in 36..100 {
        tokenizer["model"]["vocab"][format!("word{id}")] = json!(id);
    }
    fs::write(&path, tokenizer.to_string()).unwrap();
    refused(&place, &[]).assert_told(&[path.to_str().unwrap(), "100 tokens", "`vocab_size` 96"]);
}

#[test]
fn snippets_that_cannot_be_used() {
    let place = Workplace::new();
    let path = place.snippets();
    let name = path.to_str().unwrap();
    let text = fs::read_to_string(&path).unwrap();

    let broken = text.replacen("\n12\t1.5\t", "\n12\tfine ", 1);
    assert_ne!(broken, text);
    fs::write(&path, broken).unwrap();
    refused(&place, &[]).assert_told(&[name, "line 13", "12\tfine", "divided by tabs"]);
    refused_on_two(&place).assert_told(&[name, "line 13"]);

    fs::write(&path, text.replacen("\n5\t-2.25\t", "\n5\tnan\t", 1)).unwrap();
    refused(&place, &[]).assert_told(&[name, "line 6"]);

    fs::write(&path, b"1\t2\tall is w\xffll\n").unwrap();
    refused(&place, &[]).assert_told(&[name, "UTF-8"]);

    fs::write(&path, "").unwrap();
    refused(&place, &[]).assert_told(&[name, "0 snippets", "nothing is left to train on"]);

    fs::remove_file(&path).unwrap();
    refused(&place, &[]).assert_told(&[name, "cargo xtask setup"]);
}

#[test]
fn numbers_that_cannot_be_right() {
    let place = Workplace::new();
    for (flag, value) in [
        ("--batch-size", "0"),
        ("--held-out", "0"),
        ("--max-length", "0"),
        ("--lr", "-1"),
        ("--lr", "nan"),
    ] {
        let flag_and_value = format!("{flag}={value}");
        let done = refused(&place, &[&flag_and_value]);
        done.assert_told(&[flag, value]);
    }
    let done = refused(&place, &["--held-out=60"]);
    done.assert_told(&["60 snippets", "nothing is left to train on"]);
    let done = refused(&place, &["--max-length=33"]);
    done.assert_told(&["`max_position_embeddings` 32", "33"]);
}

#[test]
fn an_output_folder_that_cannot_be_made_is_told_before_training() {
    let place = Workplace::new();
    fs::write(place.output(), "a file in the way").unwrap();
    let path = place.output();
    let done = refused(&place, &[]);
    done.assert_told(&[path.to_str().unwrap(), "--output"]);
    assert_eq!(fs::read(&path).unwrap(), b"a file in the way");
    refused_on_two(&place).assert_told(&[path.to_str().unwrap(), "--output"]);
}

/// Even the superuser makes no folder there.
#[cfg(target_os = "linux")]
#[test]
fn an_output_folder_that_cannot_be_written_is_told_before_training() {
    let place = Workplace::new();
    let done = place.nlp().args(["--output", "/proc/self"]).run();
    assert_eq!(done.status.code(), Some(1), "{done:#?}");
    assert_eq!(done.stdout, "", "it trained first");
    done.assert_told(&["/proc/self", "--output"]);
}
