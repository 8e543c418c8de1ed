//! `accelerate inspect`.

use std::fs;

use accelerate_formats::{
    Dict, OffloadWriter, ShardSize, Value as Saved, Weights, write_distributed, write_torch_file,
};
use serde_json::{Value, json};

use crate::{
    checkpoints::{copy, fixture, floats, singles, tied_torch_file, two_ranks},
    command::{Done, Folder},
};

fn inspect(folder: &Folder, words: &[&str]) -> Done {
    folder.accelerate(["inspect"]).args(words).done()
}

fn json_of(folder: &Folder, words: &[&str]) -> Value {
    let done = inspect(folder, &[words, &["--json"]].concat());
    serde_json::from_str(&done.stdout).unwrap()
}

#[test]
fn tensors_are_told_with_their_places() {
    let folder = Folder::new();
    singles(
        &folder.path("model.safetensors"),
        &[
            ("b.weight", &[1.0, 2.0]),
            ("a.weight", &[3.0; 3]),
            ("a.bias", &[4.0]),
        ],
    );
    let done = inspect(&folder, &["model.safetensors"]);
    done.assert_code(0)
        .assert_prints("model.safetensors: a safetensors file, 3 tensors (24 bytes)\n")
        .assert_prints("  metadata format: pt\n")
        .assert_prints("dtype  tensors  elements  bytes\nF32    3        6         24\n");
    let answer = json_of(&folder, &["model.safetensors"]);
    let whole = fs::read(folder.path("model.safetensors")).unwrap();
    for (tensor, numbers) in answer["tensors"].as_array().unwrap().iter().zip([
        &[4.0][..],
        &[3.0, 3.0, 3.0],
        &[1.0, 2.0],
    ]) {
        let begin = tensor["offset"].as_u64().unwrap() as usize;
        let bytes = tensor["bytes"].as_u64().unwrap() as usize;
        assert_eq!(&whole[begin..begin + bytes], floats(numbers), "{tensor}");
        assert_eq!(tensor["file"], json!("model.safetensors"));
    }
    let named = |words: &[&str]| -> Vec<Value> {
        let answer = json_of(&folder, &[&["model.safetensors"], words].concat());
        let tensors = answer["tensors"].as_array().unwrap();
        tensors
            .iter()
            .map(|tensor| tensor["name"].clone())
            .collect()
    };
    assert_eq!(
        named(&["--sort", "name"]),
        ["a.bias", "a.weight", "b.weight"]
    );
    assert_eq!(
        named(&["--sort", "size"]),
        ["a.weight", "b.weight", "a.bias"]
    );
    assert_eq!(named(&["--filter", "*.weight"]), ["a.weight", "b.weight"]);
    let done = inspect(&folder, &["model.safetensors", "--summary"]);
    assert!(!done.stdout.contains("b.weight"), "{done:?}");
}

#[test]
fn files_of_torch_are_told_with_everything_in_them() {
    let folder = Folder::new();
    tied_torch_file(&folder.path("tied.pt"));
    let answer = json_of(&folder, &["tied.pt"]);
    assert_eq!(answer["format"], json!("torch"));
    assert_eq!(
        answer["tied"],
        json!([{"name": "head", "tied_to": "embed"}])
    );
    let turned = &answer["tensors"][1];
    assert_eq!(
        (&turned["name"], &turned["strides"]),
        (&json!("turned"), &json!([1, 2]))
    );
    let whole = fs::read(folder.path("tied.pt")).unwrap();
    let begin = answer["tensors"][0]["offset"].as_u64().unwrap() as usize;
    assert_eq!(whole[begin..begin + 8], floats(&[1.0, 2.0]));
    // As a distributed checkpoint, both names have one place.
    let weights = Weights::open(folder.path("tied.pt")).unwrap();
    write_distributed(&weights, folder.path("dcp"), "model", ShardSize::default()).unwrap();
    let answer = json_of(&folder, &["dcp"]);
    assert_eq!(
        answer["tied"],
        json!([{"name": "model.head", "tied_to": "model.embed"}])
    );
    inspect(&folder, &["dcp"]).assert_prints("model.head is tied to model.embed");
    let optimizer = fixture("optimizer.bin");
    let done = inspect(&folder, &[optimizer.to_str().unwrap()]);
    done.assert_code(0)
        .assert_prints("state.0.exp_avg")
        .assert_prints("param_groups.0.lr = 0.01\n");
    let stranger = fixture("stranger.pt");
    let done = inspect(&folder, &[stranger.to_str().unwrap()]);
    done.assert_code(1)
        .assert_says("`__main__.Stranger`")
        .assert_says("nothing is executed");
}

#[test]
fn folders_of_several_ranks_are_told_part_by_part() {
    let folder = Folder::new();
    two_ranks(&folder.path("dcp"), 5, Some("model.lr"));
    let answer = json_of(&folder, &["dcp"]);
    let weight = &answer["tensors"][1];
    assert_eq!(weight["parts"][1]["begin"], json!([3, 0]));
    assert_eq!(weight["parts"][1]["file"], json!("__1_0.distcp"));
    assert_eq!(
        answer["values"],
        json!([{"name": "model.lr", "value": "0.5"}])
    );
    fs::remove_file(folder.path("dcp/__1_0.distcp")).unwrap();
    let done = inspect(&folder, &["dcp"]);
    done.assert_code(1)
        .assert_prints("1 of its 2 files is missing: `__1_0.distcp`");
    let zero = fixture("zero2");
    let done = inspect(&folder, &[zero.to_str().unwrap()]);
    done.assert_code(0)
        .assert_prints("a DeepSpeed checkpoint, 4 tensors")
        .assert_prints("alias is tied to second")
        .assert_prints("stage: 2");
    let mut writer = OffloadWriter::create(folder.path("off")).unwrap();
    let half = [0u8; 4];
    writer
        .write("w", accelerate_formats::Dtype::Bf16, &[2], &half)
        .unwrap();
    writer.finish().unwrap();
    let answer = json_of(&folder, &["off"]);
    assert_eq!(
        (&answer["format"], &answer["tensors"][0]["file"]),
        (&json!("offload"), &json!("w.dat"))
    );
}

/// A folder as `save_state` writes it, with a manifest.
fn saved_state(folder: &Folder) {
    fs::create_dir(folder.path("state")).unwrap();
    singles(
        &folder.path("state/model.safetensors"),
        &[("w", &[1.0, 2.0])],
    );
    let scheduler = Dict::new().with("last_epoch", 3);
    write_torch_file(folder.path("state/scheduler.bin"), &Saved::from(scheduler)).unwrap();
    copy(&fixture("distributed"), &folder.path("state/optimizer_0"));
    let names = [
        "model.safetensors",
        "scheduler.bin",
        "optimizer_0/__0_0.distcp",
    ];
    let files: Vec<Value> = names
        .iter()
        .map(|name| {
            let bytes = fs::read(folder.path("state").join(name)).unwrap();
            let hash = blake3::hash(&bytes).to_hex().to_string();
            json!({"name": name, "size": bytes.len(), "blake3": hash})
        })
        .collect();
    let manifest = json!({
        "version": 1, "program": "train", "library": "0.1.0", "num_processes": 2,
        "iteration": 4, "saved_at": 1_700_000_000, "files": files,
    });
    folder.write("state/accelerate_manifest.json", &manifest.to_string());
}

#[test]
fn saved_states_are_told_file_by_file_and_checked() {
    let folder = Folder::new();
    saved_state(&folder);
    let done = inspect(&folder, &["state", "--verify"]);
    done.assert_code(0)
        .assert_prints("saved by train on 2 processes, iteration 4, 3 files")
        .assert_prints("optimizer_0: a distributed checkpoint, 4 tensors")
        .assert_prints("last_epoch = 3");
    let answer = json_of(&folder, &["state"]);
    assert_eq!(answer["manifest"]["num_processes"], json!(2));
    let members: Vec<&Value> = answer["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["path"])
        .collect();
    assert_eq!(
        members,
        ["model.safetensors", "optimizer_0", "scheduler.bin"]
    );
    // One bit of the weights: only the hashes know.
    let path = folder.path("state/model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    inspect(&folder, &["state"]).assert_code(0);
    inspect(&folder, &["state", "--verify"])
        .assert_code(1)
        .assert_prints("the content of `model.safetensors` is not what was saved");
    bytes.truncate(bytes.len() - 1);
    fs::write(&path, &bytes).unwrap();
    inspect(&folder, &["state"])
        .assert_code(1)
        .assert_prints("`model.safetensors` has ");
    let stranger = fixture("stranger.pt");
    fs::copy(stranger, folder.path("state/custom_checkpoint_0.pkl")).unwrap();
    inspect(&folder, &["state"])
        .assert_prints("custom_checkpoint_0.pkl: unreadable")
        .assert_prints("__main__.Stranger");
    folder.write("state/accelerate_manifest.json", "{\"version\": 1}");
    inspect(&folder, &["state"])
        .assert_code(1)
        .assert_prints("its `accelerate_manifest.json` cannot be read: missing field");
}

#[test]
fn where_there_is_nothing_that_is_said() {
    let folder = Folder::new();
    folder.write("notes.txt", "words");
    for path in ["notes.txt", "home"] {
        let done = inspect(&folder, &[path]);
        done.assert_code(1)
            .assert_says(&format!("nothing to inspect in `{path}`"))
            .assert_says("hint: known are");
    }
    inspect(&folder, &["absent"])
        .assert_code(1)
        .assert_says("cannot open `absent`");
    inspect(&folder, &["home", "--sort", "colour"]).assert_code(2);
}
