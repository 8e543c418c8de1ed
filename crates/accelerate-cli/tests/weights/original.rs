//! Beside PyTorch and the original: the same bytes, and files that each reads of the other.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use accelerate_testkit::parity_python;

use crate::command::Folder;

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/weight_files.py")
}

fn run(python: &Path, words: &[&str]) {
    let ran = Command::new(python)
        .arg(script())
        .args(words)
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{words:?}: {text}");
}

#[test]
fn parity_merged_and_converted_weights_are_the_originals() {
    let Some(python) = parity_python("parity_merged_and_converted_weights_are_the_originals")
    else {
        return;
    };
    let folder = Folder::new();
    let here = folder.path(".");
    run(&python, &["make", here.to_str().unwrap()]);
    for words in [
        &["merge-weights", "pytorch_model_fsdp_0", "ours"][..],
        &[
            "merge-weights",
            "pytorch_model_fsdp_0",
            "ours_bin",
            "--unsafe_serialization",
        ],
        &[
            "merge-weights",
            "optimizer_0",
            "ours_optimizer",
            "--unsafe_serialization",
        ],
        &["convert", "merged", "ours_dcp", "--to", "dcp"],
        &[
            "convert",
            "merged",
            "ours_shards_dcp",
            "--to",
            "dcp",
            "--max_shard_size",
            "1KB",
        ],
        &[
            "convert",
            "merged",
            "ours_torch",
            "--to",
            "torch",
            "--max_shard_size",
            "1KB",
        ],
        &["convert", "state.bin", "ours_state.pt", "--part", "model"],
        &[
            "convert",
            "state.bin",
            "ours_tied_dcp",
            "--part",
            "model",
            "--to",
            "dcp",
        ],
        &[
            "convert",
            "merged_bin",
            "ours_half.safetensors",
            "--dtype",
            "float16",
        ],
        &["diff", "pytorch_model_fsdp_0", "merged"],
        &["diff", "merged_bin", "merged"],
    ] {
        folder.accelerate(words).done().assert_code(0);
    }
    let bytes = |name: &str| fs::read(folder.path(name)).unwrap();
    assert!(
        bytes("ours/model.safetensors") == bytes("merged/model.safetensors"),
        "the same file to the last byte"
    );
    run(&python, &["check", here.to_str().unwrap()]);
}
