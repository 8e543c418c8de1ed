//! `accelerate merge-weights`.

use std::{fs, os::unix::fs::symlink, path::Path};

use accelerate_formats::{TorchFile, Weights};

use crate::{
    checkpoints::{contents, copy, fixture, floats, names, singles, two_ranks},
    command::Folder,
};

fn numbers(weights: &Weights, name: &str) -> Vec<u8> {
    weights.get(name).unwrap().bytes().unwrap().into_owned()
}

#[test]
fn shards_become_one_file_without_their_only_key() {
    let folder = Folder::new();
    two_ranks(&folder.path("pytorch_model_fsdp_0"), 5, None);
    let done = folder
        .accelerate(["merge-weights", "pytorch_model_fsdp_0", "out"])
        .done();
    done.assert_code(0).assert_prints(
        "merged 3 tensors (100 bytes) of `pytorch_model_fsdp_0` into `out/model.safetensors`\n",
    );
    assert_eq!(done.stderr, "");
    assert_eq!(names(&folder.path("out")), ["model.safetensors"]);
    let weights = Weights::open(folder.path("out")).unwrap();
    assert_eq!(
        weights.names().collect::<Vec<_>>(),
        ["step", "weight", "wide"]
    );
    let rows: Vec<f32> = (0..20).map(|n| n as f32 / 8.0).collect();
    assert_eq!(numbers(&weights, "weight"), floats(&rows));
    assert_eq!(numbers(&weights, "wide"), floats(&[1.0, 2.0, 3.0, 4.0]));
    let metadata = weights.files()[0].metadata().unwrap();
    assert_eq!(metadata.iter().collect::<Vec<_>>(), [("format", "pt")]);
    assert!(folder.path("pytorch_model_fsdp_0/.metadata").exists());
}

#[test]
fn the_name_of_a_link_is_enough() {
    let folder = Folder::new();
    two_ranks(&folder.path("in"), 2, None);
    let link = folder.path("bin/accelerate-merge-weights");
    symlink(env!("CARGO_BIN_EXE_accelerate"), &link).unwrap();
    let done = folder
        .run_as(&link, ["in", "out", "--unsafe-serialization"])
        .done();
    done.assert_code(0).assert_prints("`out/pytorch_model.bin`");
    let file = TorchFile::open(folder.path("out/pytorch_model.bin")).unwrap();
    let weight = file.value().get("weight").unwrap().as_tensor().unwrap();
    assert_eq!(weight.shape(), [2, 4]);
}

#[test]
fn files_are_cut_and_indexed_where_that_is_asked_for() {
    let folder = Folder::new();
    two_ranks(&folder.path("in"), 5, None);
    let words = ["merge-weights", "in", "out", "--max_shard_size", "0.09KB"];
    let done = folder.accelerate(words).done();
    done.assert_code(0)
        .assert_prints("`out/model.safetensors.index.json` and 2 files");
    let bin = words.iter().chain(&["--unsafe_serialization"]);
    folder.accelerate(bin).done().assert_code(0);
    // What was there in the other format stays, since nobody asked for its removal.
    assert_eq!(
        names(&folder.path("out")),
        [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json",
            "pytorch_model-00001-of-00002.bin",
            "pytorch_model-00002-of-00002.bin",
            "pytorch_model.bin.index.json",
        ]
    );
    // One file takes the place of all shards.
    let done = folder.accelerate(["merge-weights", "in", "out"]).done();
    done.assert_code(0);
    assert!(!folder.path("out/model.safetensors.index.json").exists());
    assert_eq!(
        Weights::open(folder.path("out/pytorch_model.bin.index.json"))
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn an_optimizer_becomes_a_nested_dict() {
    let folder = Folder::new();
    let input = folder.path("optimizer_0");
    two_ranks(&input, 3, Some("model.groups"));
    let refused = folder
        .accelerate(["merge-weights", "optimizer_0", "out"])
        .done();
    refused
        .assert_code(1)
        .assert_says("holds a value beside its tensors: `groups`")
        .assert_says("--unsafe_serialization");
    assert!(
        !folder.path("out").exists(),
        "what was made in vain is gone"
    );
    let words = [
        "merge-weights",
        "optimizer_0",
        "out",
        "--unsafe_serialization",
    ];
    folder
        .accelerate(words.iter().chain(&["--max_shard_size", "1GB"]))
        .done()
        .assert_code(1)
        .assert_says("leave out `--max_shard_size`");
    folder.accelerate(words).done().assert_code(0);
    let file = TorchFile::open(folder.path("out/pytorch_model.bin")).unwrap();
    assert_eq!(file.value().get("groups").unwrap().as_f64(), Some(0.5));
    let weight = file.value().get("weight").unwrap().as_tensor().unwrap();
    let rows: Vec<f32> = (0..12).map(|n| n as f32 / 8.0).collect();
    assert_eq!(*weight.bytes().unwrap(), *floats(&rows));
    // PyTorch's own, with two first keys: they stay.
    let input = fixture("distributed");
    let words = [input.to_str().unwrap(), "both", "--unsafe_serialization"];
    let done = folder.accelerate(["merge-weights"]).args(words).done();
    done.assert_code(0).assert_prints("and 2 other values");
    let file = TorchFile::open(folder.path("both/pytorch_model.bin")).unwrap();
    let groups = file
        .value()
        .get("optimizer")
        .unwrap()
        .get("param_groups")
        .unwrap();
    assert_eq!(
        groups.as_slice().unwrap()[0].get("lr").unwrap().as_f64(),
        Some(0.5)
    );
    assert!(file.value().get("model").unwrap().get("half").is_some());
}

#[test]
fn folders_of_deepspeed_become_full_precision_weights() {
    let folder = Folder::new();
    for stage in ["zero2", "zero3"] {
        let input = fixture(stage);
        let done = folder
            .accelerate(["merge-weights", input.to_str().unwrap(), stage])
            .done();
        done.assert_code(0).assert_says("written by 2 ranks");
        let weights = Weights::open(folder.path(stage)).unwrap();
        let first: Vec<f32> = (0..5).map(|n| n as f32 / 4.0).collect();
        assert_eq!(numbers(&weights, "first"), floats(&first));
        assert_eq!(numbers(&weights, "alias"), floats(&[-1.5, -0.5, 0.5, 1.5]));
        assert_eq!(numbers(&weights, "counts"), floats(&[3.0, 4.0]));
        let done = folder
            .accelerate(["merge-weights", input.to_str().unwrap(), stage])
            .args(["--unsafe_serialization", "--tag", "pytorch_model"])
            .done();
        done.assert_code(0).assert_prints("pytorch_model.bin");
    }
    for name in ["zero1_fp16", "zero1_bf16", "zero2_fp16", "zero3_fp16"] {
        let input = fixture(name);
        let done = folder
            .accelerate(["merge-weights", input.to_str().unwrap(), name])
            .done();
        done.assert_code(0).assert_says("written by 3 ranks");
        let weights = Weights::open(folder.path(name)).unwrap();
        assert_eq!(numbers(&weights, "scale"), floats(&[1.0001]), "{name}");
        assert_eq!(numbers(&weights, "layer.bias"), floats(&[0.3, -0.7]));
        assert_eq!(weights.aliases().len(), 1);
        // What is frozen is there under stage 1 too.
        assert_eq!(weights.get("frozen").unwrap().shape(), [2, 4], "{name}");
    }
    let bins = ["zero2/pytorch_model.bin", "zero3/pytorch_model.bin"].map(|name| folder.path(name));
    let [first, second] = bins.map(|path| fs::read(path).unwrap());
    assert!(first == second, "both stages hold the same weights");
}

#[test]
fn shards_are_removed_only_when_that_is_safe() {
    let folder = Folder::new();
    two_ranks(&folder.path("in"), 3, None);
    let remove = |input: &str, output: &str| {
        folder
            .accelerate(["merge-weights", input, output, "--remove_checkpoint_dir"])
            .done()
    };
    let before = contents(&folder.path("in"));
    for inside in ["in", "in/merged", "in/../in/merged"] {
        let done = remove("in", inside);
        done.assert_code(2)
            .assert_says("would delete")
            .assert_says("another folder");
    }
    symlink(folder.path("in"), folder.path("link")).unwrap();
    for link in ["link", "link/", "link/."] {
        remove(link, "out").assert_code(2).assert_says("is a link");
    }
    assert_eq!(contents(&folder.path("in")), before);
    // A folder above the output that is absent: nothing is removed either.
    remove("in", "no/out")
        .assert_code(1)
        .assert_says("hint: make the folder above it");
    assert_eq!(contents(&folder.path("in")), before);
    remove("in", "out")
        .assert_code(0)
        .assert_prints("removed `in`\n");
    assert!(!folder.path("in").exists());
    assert_eq!(Weights::open(folder.path("out")).unwrap().len(), 3);
    // Of DeepSpeed's folder, only the tag that was merged goes.
    copy(&fixture("zero2"), &folder.path("zero"));
    fs::create_dir(folder.path("zero/global_step9")).unwrap();
    remove("zero", "full").assert_code(0);
    assert_eq!(names(&folder.path("zero")), ["global_step9", "latest"]);
}

#[test]
fn who_gives_the_wrong_folder_is_told_the_right_one() {
    let folder = Folder::new();
    for inner in ["pytorch_model_fsdp_0", "optimizer_0"] {
        two_ranks(&folder.path("checkpoint").join(inner), 2, None);
    }
    fs::write(folder.path("checkpoint/scheduler.bin"), b"").unwrap();
    let merge = |input: &str| folder.accelerate(["merge-weights", input, "out"]).done();
    let done = merge("checkpoint");
    done.assert_code(1)
        .assert_says("no sharded checkpoint in `checkpoint`");
    done.assert_says(
        "hint: give a folder in it: `checkpoint/optimizer_0`, `checkpoint/pytorch_model_fsdp_0`",
    );
    merge("nowhere")
        .assert_code(1)
        .assert_says("cannot open `nowhere`");
    singles(&folder.path("model.safetensors"), &[("a", &[1.0])]);
    merge("model.safetensors")
        .assert_code(1)
        .assert_says("accelerate convert");
    merge("home").assert_code(1).assert_says(".metadata");
    fs::write(folder.path("out"), b"").unwrap();
    merge("checkpoint/optimizer_0")
        .assert_code(1)
        .assert_says("expected a folder at `out`, found a file");
    folder
        .accelerate(["merge-weights", "in"])
        .done()
        .assert_code(2);
}

#[test]
fn a_file_that_readers_would_take_instead_is_told() {
    let folder = Folder::new();
    two_ranks(&folder.path("in"), 2, None);
    fs::create_dir(folder.path("out")).unwrap();
    fs::write(Path::new(&folder.path("out/pytorch_model.bin")), b"old").unwrap();
    let done = folder.accelerate(["merge-weights", "in", "out"]).done();
    done.assert_code(0)
        .assert_says("`out/pytorch_model.bin` is there from before");
    assert_eq!(
        fs::read(folder.path("out/pytorch_model.bin")).unwrap(),
        b"old"
    );
    // Shards of the other format come after a whole file of this one.
    fs::create_dir(folder.path("shards")).unwrap();
    fs::write(folder.path("shards/model.safetensors"), b"old").unwrap();
    let words = ["merge-weights", "in", "shards", "--unsafe_serialization"];
    let words = words.iter().chain(&["--max_shard_size", "0.03KB"]);
    folder
        .accelerate(words)
        .done()
        .assert_code(0)
        .assert_says("`shards/model.safetensors` is there from before");
}
