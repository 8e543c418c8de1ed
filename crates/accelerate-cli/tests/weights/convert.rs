//! `accelerate convert`.

use std::fs;

use accelerate_formats::{
    Dict, DistributedCheckpoint, Dtype, Metadata, TensorData, TorchFile, Value, Weights,
    write_file, write_torch_file,
};

use crate::{
    checkpoints::{
        contents, copy, fixture, floats, names, singles, tensor, tied_torch_file, two_ranks,
    },
    command::{Done, Folder},
};

fn convert(folder: &Folder, words: &[&str]) -> Done {
    folder.accelerate(["convert"]).args(words).done()
}

#[test]
fn every_format_becomes_every_other() {
    let folder = Folder::new();
    tied_torch_file(&folder.path("tied.pt"));
    // Through all formats and back.
    for (from, to, words) in [
        ("tied.pt", "one.safetensors", &[][..]),
        ("one.safetensors", "dcp", &["--to", "dcp"]),
        (
            "dcp",
            "shards",
            &["--to", "torch", "--max_shard_size", "0.03KB"],
        ),
        ("shards", "cut", &["--max-shard-size", "0.03KB"]),
        ("cut/model.safetensors.index.json", "last.bin", &[]),
    ] {
        let done = convert(&folder, &[&[from, to], words].concat());
        done.assert_code(0);
        assert_eq!(done.stderr, "", "{to}");
    }
    for name in ["one.safetensors", "shards", "cut", "last.bin"] {
        let weights = Weights::open(folder.path(name)).unwrap();
        let bytes = |name: &str| weights.get(name).unwrap().bytes().unwrap().into_owned();
        assert_eq!(bytes("turned"), floats(&[1.0, 2.0, 3.0, 4.0]), "{name}");
        for tied in ["embed", "head"] {
            assert_eq!(
                bytes(tied),
                floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
                "{name}"
            );
        }
    }
    assert_eq!(
        names(&folder.path("cut")),
        [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json"
        ],
        "tied tensors are still one behind a distributed checkpoint"
    );
    let one = Weights::open(folder.path("one.safetensors")).unwrap();
    assert_eq!(one.aliases().collect::<Vec<_>>(), [("head", "embed")]);
    let dcp = DistributedCheckpoint::open(folder.path("dcp")).unwrap();
    assert_eq!(
        dcp.tensors()
            .map(|tensor| tensor.name())
            .collect::<Vec<_>>(),
        ["model.embed", "model.head", "model.turned"]
    );
    // Tied tensors have one place in a distributed checkpoint.
    let place = |name: &str| dcp.tensor(name).unwrap().chunks()[0].file_offset();
    assert_eq!(place("model.embed"), place("model.head"));
}

#[test]
fn shards_of_a_distributed_checkpoint_are_files_of_ranks() {
    let folder = Folder::new();
    singles(
        &folder.path("in.safetensors"),
        &[("a", &[1.0; 4]), ("b", &[2.0; 4]), ("c", &[3.0; 4])],
    );
    let words = [
        "in.safetensors",
        "out",
        "--to",
        "dcp",
        "--max_shard_size",
        "0.04KB",
    ];
    convert(&folder, &words)
        .assert_code(0)
        .assert_prints("`out` (2 files)");
    assert_eq!(
        names(&folder.path("out")),
        [".metadata", "__0_0.distcp", "__1_0.distcp"]
    );
    let again = convert(&folder, &words);
    again
        .assert_code(1)
        .assert_says("there is something in `out` already");
    again.assert_says("hint: name a folder that is absent or empty");
    convert(&folder, &["out", "back.safetensors"]).assert_code(0);
    let same =
        ["in.safetensors", "back.safetensors"].map(|name| fs::read(folder.path(name)).unwrap());
    assert!(same[0] == same[1], "nothing is lost on the way");
}

#[test]
fn floats_are_rounded_to_the_nearest_and_the_rest_stays() {
    let folder = Folder::new();
    let numbers = floats(&[1.0 + 1.0 / 256.0, 65504.0, 1e6, f32::NAN]);
    let path = folder.path("in.safetensors");
    let data = [
        TensorData::new("w", Dtype::F32, &[4], &numbers),
        TensorData::new("position", Dtype::I32, &[1], &[1, 2, 3, 4]),
    ];
    write_file(&path, data, &Metadata::new().with("note", "kept")).unwrap();
    let done = convert(
        &folder,
        &["in.safetensors", "half.safetensors", "--dtype", "fp16"],
    );
    done.assert_code(0)
        .assert_says("numbers beyond `F16` became infinite\n\t1 in `w`");
    let half = Weights::open(folder.path("half.safetensors")).unwrap();
    let bits = |weights: &Weights| -> Vec<u16> {
        let bytes = weights.get("w").unwrap().bytes().unwrap().into_owned();
        bytes
            .chunks(2)
            .map(|n| u16::from_le_bytes([n[0], n[1]]))
            .collect()
    };
    assert_eq!(bits(&half)[..3], [0x3c04, 0x7bff, 0x7c00]);
    assert_eq!(half.get("position").unwrap().dtype(), Dtype::I32);
    assert_eq!(
        half.files()[0].metadata().unwrap().get("note"),
        Some("kept")
    );
    // Half-way between two numbers of bfloat16: the even one.
    convert(&folder, &["in.safetensors", "bf", "--dtype", "bfloat16"]).assert_code(0);
    let upper = Weights::open(folder.path("bf")).unwrap();
    assert_eq!(bits(&upper)[..2], [0x3f80, 0x4780]);
    convert(&folder, &["bf", "wide.bin", "--dtype", "float64"]).assert_code(0);
    let wide = Weights::open(folder.path("wide.bin")).unwrap();
    assert_eq!(wide.get("w").unwrap().dtype(), Dtype::F64);
    let refused = convert(&folder, &["bf", "x", "--dtype", "float8_e4m3fn"]);
    refused.assert_code(2).assert_says("need scales");
    let data = [TensorData::new("q", Dtype::F8E4m3, &[2], &[1, 2])];
    write_file(folder.path("f8.safetensors"), data, &Metadata::pytorch()).unwrap();
    convert(&folder, &["f8.safetensors", "x", "--dtype", "bf16"])
        .assert_code(1)
        .assert_says("tensor `q` of type `F8_E4M3` cannot become `BF16`")
        .assert_says("hint: leave out `--dtype`");
    assert!(!folder.path("x").exists());
}

#[test]
fn parts_are_found_and_what_is_no_tensor_is_not_lost_silently() {
    let folder = Folder::new();
    let model = Dict::new().with("w", tensor(&[2], &[1.0, 2.0]));
    let state = Dict::new()
        .with("state", Dict::new().with("model", model))
        .with("epoch", 3);
    write_torch_file(folder.path("all.pt"), &Value::from(state)).unwrap();
    convert(&folder, &["all.pt", "x.safetensors"])
        .assert_code(1)
        .assert_says("--part KEY");
    let done = convert(
        &folder,
        &["all.pt", "w.safetensors", "--part", "state.model"],
    );
    done.assert_code(0);
    let weights = Weights::open(folder.path("w.safetensors")).unwrap();
    assert_eq!(weights.names().collect::<Vec<_>>(), ["w"]);
    convert(&folder, &["all.pt", "x", "--part", "model"])
        .assert_code(1)
        .assert_says("has no part `model`; it has `state`");
    // PyTorch's own checkpoint of a model and its optimizer.
    let both = fixture("distributed");
    let both = both.to_str().unwrap();
    convert(&folder, &[both, "x"])
        .assert_code(1)
        .assert_says("holds 2 values beside its tensors")
        .assert_says("`--part KEY`");
    convert(&folder, &[both, "m", "--part", "model"]).assert_code(0);
    let weights = Weights::open(folder.path("m")).unwrap();
    assert_eq!(
        weights.names().collect::<Vec<_>>(),
        ["buffer", "weight", "half"]
    );
    convert(&folder, &[both, "x", "--part", "modell"])
        .assert_code(1)
        .assert_says("it has `model`, `optimizer`");
    convert(&folder, &["w.safetensors", "x", "--part", "w"]).assert_code(1);
}

#[test]
fn the_source_is_never_replaced() {
    let folder = Folder::new();
    fs::create_dir(folder.path("model")).unwrap();
    tied_torch_file(&folder.path("model/pytorch_model.bin"));
    let before = contents(&folder.path("model"));
    for words in [
        &["model", "model"][..],
        &["model", "model/pytorch_model.bin"],
        &["model/pytorch_model.bin", "./model", "--to", "torch"],
    ] {
        convert(&folder, words)
            .assert_code(2)
            .assert_says("holds the source");
    }
    assert_eq!(contents(&folder.path("model")), before);
    copy(&fixture("zero2"), &folder.path("zero"));
    let before = contents(&folder.path("zero/pytorch_model"));
    for output in [
        "zero/pytorch_model",
        "zero/pytorch_model/mp_rank_00_model_states.pt",
        "zero/pytorch_model/new.pt",
    ] {
        convert(&folder, &["zero", output, "--to", "torch"])
            .assert_code(2)
            .assert_says("holds the source");
    }
    assert_eq!(contents(&folder.path("zero/pytorch_model")), before);
    for (words, said) in [
        (
            &["model", "x.bin", "--max_shard_size", "1GB"][..],
            "asks for several",
        ),
        (
            &["model", "x.safetensors", "--to", "torch"],
            "another format",
        ),
        (&["model", "x.bin", "--to", "dcp"], "is a folder"),
        (
            &["model", "x", "--max_shard_size", "5GiB"],
            "no size of a file",
        ),
        (&["model", "x", "--to", "onnx"], "onnx"),
    ] {
        convert(&folder, words).assert_code(2).assert_says(said);
    }
    // A new file beside the source is fine.
    convert(&folder, &["model", "model/new.safetensors"]).assert_code(0);
    two_ranks(&folder.path("ranks"), 2, None);
    convert(&folder, &["ranks", "ranks"]).assert_code(2);
    let every = fixture("every_kind.bin");
    convert(&folder, &[every.to_str().unwrap(), "x"])
        .assert_code(1)
        .assert_says("complex128");
    let done = convert(&folder, &[every.to_str().unwrap(), "every.pt"]);
    done.assert_code(0);
    let file = TorchFile::open(folder.path("every.pt")).unwrap();
    assert_eq!(file.value().as_dict().unwrap().len(), 28);
}
