//! DeepSpeed's folders, offload folders, and everything as sharded safetensors files.
#![expect(
    clippy::unwrap_used,
    reason = "functions that tests share may fail like tests"
)]

mod fixtures;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use accelerate_formats::offload::OffloadEntry;
use accelerate_formats::sharded::{DistributedPart, TensorSource};
use accelerate_formats::{
    Dict, DistributedCheckpoint, Dtype, Error, OffloadFault, OffloadFolder, OffloadWriter,
    ShardFormat, ShardIndex, ShardSize, ShardedOptions, ShardedWriter, Storage, StoredTensor,
    Weights, ZeroCheckpoint, ZeroFault, write_sharded, write_sharded_with, write_torch_file,
};
use accelerate_formats::{TensorHeader, Value};
use fixtures::{Expected, expected, fixture, folder_of_fixtures};

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

/// A folder of DeepSpeed among the fixtures.
struct Zero {
    name: &'static str,
    stage: u8,
    ranks: usize,
    tag: &'static str,
    alias: (&'static str, &'static str),
    tensors: &'static [&'static str],
}

const fn zero_of_two(name: &'static str, stage: u8) -> Zero {
    Zero {
        name,
        stage,
        ranks: 2,
        tag: "pytorch_model",
        alias: ("alias", "second"),
        tensors: &["counts", "frozen", "first", "second"],
    }
}

const fn zero_of_three(name: &'static str, stage: u8) -> Zero {
    Zero {
        name,
        stage,
        ranks: 3,
        tag: "global_step12",
        alias: ("tied.weight", "head.weight"),
        // The files of stage 1 do not list what is frozen.
        tensors: match stage {
            1 => &[
                "norm.running",
                "layer.weight",
                "head.weight",
                "scale",
                "layer.bias",
                "frozen",
            ],
            _ => &[
                "norm.running",
                "frozen",
                "layer.weight",
                "head.weight",
                "scale",
                "layer.bias",
            ],
        },
    }
}

/// Every stage, with bfloat16 and with float16.
const ZEROS: [Zero; 6] = [
    zero_of_three("zero1_bf16", 1),
    zero_of_three("zero1_fp16", 1),
    zero_of_two("zero2", 2),
    zero_of_three("zero2_fp16", 2),
    zero_of_two("zero3", 3),
    zero_of_three("zero3_fp16", 3),
];

fn check_zero(folder: &Path, zero: &Zero) {
    let whole = folder.join(zero.name);
    let checkpoint = ZeroCheckpoint::open(&whole, None).unwrap();
    assert_eq!(
        (checkpoint.stage(), checkpoint.world_size()),
        (zero.stage, zero.ranks)
    );
    assert_eq!(checkpoint.aliases().collect::<Vec<_>>(), [zero.alias]);
    let names: Vec<&str> = checkpoint
        .tensors()
        .map(|tensor| tensor.name.as_str())
        .collect();
    assert_eq!(names, zero.tensors, "{}", zero.name);
    let mut bytes = vec![1];
    let wanted = expected(folder, zero.name);
    assert_eq!(wanted.len(), names.len());
    for tensor in wanted {
        let name = &tensor.name;
        let mut headers = checkpoint.tensors();
        let header = headers.find(|header| header.name == *name).unwrap();
        assert_eq!(
            (header.dtype, &header.shape),
            (tensor.dtype, &tensor.shape),
            "{name}"
        );
        checkpoint.read_into(name, &mut bytes).unwrap();
        assert_eq!(bytes, tensor.bytes, "{name} of {}", zero.name);
    }
    let by_tag = ZeroCheckpoint::open(&whole, Some(zero.tag)).unwrap();
    let inside = ZeroCheckpoint::open(whole.join(zero.tag), None).unwrap();
    assert_eq!(by_tag.folder(), inside.folder());
}

#[test]
fn partitions_of_deepspeed_become_whole_weights() {
    for zero in &ZEROS {
        check_zero(&folder_of_fixtures(), zero);
    }
}

#[test]
fn parity_partitions_made_anew_become_whole_weights() {
    let Some(python) = accelerate_testkit::parity_python("partitions of DeepSpeed") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    fixtures::make(&python, folder.path());
    for zero in &ZEROS {
        check_zero(folder.path(), zero);
    }
}

#[test]
fn a_folder_without_a_stage_is_told_from_one_of_zero() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zero1_bf16");
    copy(&fixture("zero1_bf16"), &path);
    // As DeepSpeed's own bfloat16 optimizer writes it, which sums gradients in float32.
    let states = Dict::new().with("optimizer_state_dict", Dict::new().with("clip_grad", 1.0));
    let rank0 = "global_step12/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt";
    write_torch_file(path.join(rank0), &states.into()).unwrap();
    let error = ZeroCheckpoint::open(&path, None).unwrap_err();
    assert!(
        matches!(&error, Error::Zero { fault, .. } if matches!(**fault, ZeroFault::NotZero { .. })),
        "{error:?}"
    );
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for name in names_in(from) {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            copy(&from, &to)
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

#[test]
fn incomplete_checkpoints_of_deepspeed_say_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zero2");
    copy(&fixture("zero2"), &path);
    let fault = |path: &Path, tag| match ZeroCheckpoint::open(path, tag).unwrap_err() {
        Error::Zero { fault, .. } => *fault,
        other => panic!("{other:?}"),
    };
    assert!(matches!(
        fault(&path, Some("../zero2")),
        ZeroFault::Tag { .. }
    ));
    let rank1 = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt";
    fs::remove_file(path.join("pytorch_model").join(rank1)).unwrap();
    let ranks = fault(&path, None);
    assert!(
        matches!(
            ranks,
            ZeroFault::Ranks {
                expected: 2,
                found: 1,
                ..
            }
        ),
        "{ranks}"
    );
    assert!(ranks.to_string().contains("of rank 1 too"), "{ranks}");
    // The partitions of another stage are of another checkpoint.
    fs::copy(
        fixture("zero3/pytorch_model").join(rank1),
        path.join("pytorch_model").join(rank1),
    )
    .unwrap();
    let other = fault(&path, None);
    assert!(
        matches!(&other, ZeroFault::Contradiction { file, .. } if file == rank1),
        "{other}"
    );
    fs::remove_file(path.join("latest")).unwrap();
    assert!(matches!(fault(&path, None), ZeroFault::NoLatest));
    fs::remove_file(path.join("pytorch_model/mp_rank_00_model_states.pt")).unwrap();
    let files = fault(&path, Some("pytorch_model"));
    assert!(
        matches!(
            files,
            ZeroFault::NoFiles {
                ending: "_model_states.pt",
                ..
            }
        ),
        "{files}"
    );
}

/// Writes a source into small files and compares every tensor.
fn check_sharded(source: &dyn TensorSource, wanted: &[Expected]) {
    let folder = tempfile::tempdir().unwrap();
    for size in ["0.03KB", "1GB"] {
        let written = write_sharded(source, folder.path(), size.parse().unwrap()).unwrap();
        let weights = Weights::open(folder.path()).unwrap();
        for Expected {
            name,
            dtype,
            shape,
            bytes,
        } in wanted
        {
            let tensor = weights.get(name).unwrap();
            assert_eq!(
                (tensor.dtype(), tensor.shape(), &*tensor.bytes().unwrap()),
                (*dtype, shape.as_slice(), bytes.as_slice()),
                "{name}"
            );
        }
        let names: Vec<String> = written
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        assert_eq!(
            names_in(folder.path()),
            sorted,
            "nothing of the save before is left"
        );
    }
}

#[test]
fn every_checkpoint_becomes_safetensors_files() {
    let folder = folder_of_fixtures();
    for Zero { name, .. } in &ZEROS {
        check_sharded(
            &ZeroCheckpoint::open(folder.join(name), None).unwrap(),
            &expected(&folder, name),
        );
    }
    let distributed = DistributedCheckpoint::open(folder.join("distributed")).unwrap();
    let all = expected(&folder, "distributed");
    check_sharded(&DistributedPart::of(&distributed), &all);
    let mut model = all;
    model.retain(|tensor| tensor.name.starts_with("model."));
    model
        .iter_mut()
        .for_each(|tensor| drop(tensor.name.drain(..6)));
    check_sharded(&DistributedPart::below(&distributed, "model"), &model);
}

#[test]
fn a_type_that_safetensors_lack_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let weights = Weights::open(fixture("every_kind.bin")).unwrap();
    let error = write_sharded(&weights, folder.path(), ShardSize::default()).unwrap_err();
    assert!(matches!(&error, Error::Unwritable { .. }), "{error:?}");
    assert!(!folder.path().join("model.safetensors").exists());
}

#[test]
fn tied_tensors_of_a_torch_file_are_stored_once_under_both_names() {
    let folder = tempfile::tempdir().unwrap();
    let tensor =
        StoredTensor::contiguous(Dtype::U8, [4], Arc::new(Storage::new(vec![1u8, 2, 3, 4])))
            .unwrap();
    let row = StoredTensor::strided(Dtype::U8, vec![2], vec![1], 2, Arc::clone(tensor.storage()))
        .unwrap();
    let dict = Dict::new()
        .with("embed", tensor.clone())
        .with("row", row)
        .with("head", tensor);
    write_torch_file(folder.path().join("pytorch_model.bin"), &dict.into()).unwrap();
    let weights = Weights::open(folder.path()).unwrap();
    write_sharded(&weights, folder.path(), "0.005KB".parse().unwrap()).unwrap();
    assert_eq!(
        names_in(folder.path()),
        [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json"
        ]
    );
    let weights = Weights::open(folder.path()).unwrap();
    assert_eq!(weights.names().collect::<Vec<_>>(), ["embed", "row"]);
    assert_eq!(weights.aliases().collect::<Vec<_>>(), [("head", "embed")]);
    assert_eq!(*weights.get("row").unwrap().bytes().unwrap(), [3, 4]);
    assert_eq!(*weights.get("head").unwrap().bytes().unwrap(), [1, 2, 3, 4]);
    let index = ShardIndex::read(folder.path().join("model.safetensors.index.json")).unwrap();
    assert_eq!(index.total_size(), Some(6));
    // And once more, from safetensors with an alias.
    let again = tempfile::tempdir().unwrap();
    write_sharded(&weights, again.path(), ShardSize::default()).unwrap();
    assert_eq!(Weights::open(again.path()).unwrap().aliases().len(), 1);
}

#[test]
fn shards_of_torch_hold_tied_tensors_under_both_names() {
    let folder = tempfile::tempdir().unwrap();
    let zero = ZeroCheckpoint::open(fixture("zero3"), None).unwrap();
    write_sharded(&zero, folder.path(), ShardSize::default()).unwrap();
    let options = ShardedOptions::default()
        .with_max_shard_size("0.03KB".parse().unwrap())
        .with_format(ShardFormat::Torch);
    let kept = options.clone().keeping_other_format();
    write_sharded_with(&zero, folder.path(), kept).unwrap();
    assert!(folder.path().join("model.safetensors").exists());
    let written = write_sharded_with(&zero, folder.path(), options).unwrap();
    assert_eq!(written.len(), 4, "three shards and an index");
    assert!(!folder.path().join("model.safetensors").exists());
    let index = ShardIndex::read(folder.path().join("pytorch_model.bin.index.json")).unwrap();
    assert_eq!(index.shard_of("alias"), index.shard_of("second"));
    let weights = Weights::open(folder.path()).unwrap();
    for Expected { name, bytes, .. } in expected(&folder_of_fixtures(), "zero3") {
        assert_eq!(
            *weights.get(&name).unwrap().bytes().unwrap(),
            bytes,
            "{name}"
        );
    }
    let tied = ["alias", "second"].map(|name| weights.get(name).unwrap().stored());
    assert!(tied[0].shares_storage_with(tied[1]));
}

#[test]
fn the_index_has_the_form_of_the_original() {
    let folder = tempfile::tempdir().unwrap();
    let header = |name: &str| TensorHeader {
        name: name.to_owned(),
        dtype: Dtype::U8,
        shape: vec![2],
    };
    let options = ShardedOptions::default().with_max_shard_size("0.002KB".parse().unwrap());
    let mut writer =
        ShardedWriter::create(folder.path(), [header("b"), header("a")], &options).unwrap();
    let mut order = Vec::new();
    while let Some(name) = writer.pending().map(|tensor| tensor.name.clone()) {
        writer.write(&name, &[1, 2]).unwrap();
        order.push(name);
    }
    assert!(writer.write("a", &[]).is_err());
    writer.finish().unwrap();
    assert_eq!(order, ["b", "a"]);
    let index = fs::read_to_string(folder.path().join("model.safetensors.index.json")).unwrap();
    let wanted = "{\n  \"metadata\": {\n    \"total_size\": 4\n  },\n  \"weight_map\": {\n    \
        \"a\": \"model-00002-of-00002.safetensors\",\n    \"b\": \"model-00001-of-00002.safetensors\"\n  }\n}\n";
    assert_eq!(index, wanted);
    // Whoever stops half-way leaves everything as it was.
    let before = names_in(folder.path());
    let mut writer =
        ShardedWriter::create(folder.path(), [header("b"), header("a")], &options).unwrap();
    writer.write("b", &[3, 4]).unwrap();
    assert!(writer.finish().is_err());
    assert_eq!(names_in(folder.path()), before);
    let kept = Weights::open(folder.path()).unwrap();
    assert_eq!(*kept.get("b").unwrap().bytes().unwrap(), [1, 2]);
    drop(kept);
    let twice =
        ShardedWriter::create(folder.path(), [header("a"), header("a")], &options).unwrap_err();
    assert!(matches!(twice, Error::Unwritable { .. }), "{twice}");
}

fn offload(folder: &Path) {
    let mut writer = OffloadWriter::create(folder).unwrap();
    let half = [1.5f32, -2.0].map(|n| half_bits(n).to_le_bytes()).concat();
    writer
        .write("layer.weight", Dtype::Bf16, &[2], &half)
        .unwrap();
    writer
        .write("layer.scale", Dtype::F32, &[], &2.5f32.to_le_bytes())
        .unwrap();
    writer
        .write("layer.empty", Dtype::I64, &[0, 3], &[])
        .unwrap();
    writer
        .write("layer.mask", Dtype::Bool, &[1, 3], &[1, 0, 1])
        .unwrap();
    writer.finish().unwrap();
}

/// The upper half of the bits, which is what bfloat16 is for numbers that need no rounding.
fn half_bits(number: f32) -> u16 {
    (number.to_bits() >> 16) as u16
}

#[test]
fn offloaded_weights_come_back() {
    let folder = tempfile::tempdir().unwrap();
    offload(folder.path());
    let index = fs::read_to_string(folder.path().join("index.json")).unwrap();
    assert!(index.starts_with("{\n  \"layer.weight\": {\n    \"dtype\": \"bfloat16\",\n    \"shape\": [\n      2\n    ]\n  },"), "{index}");
    assert_eq!(
        fs::read(folder.path().join("layer.empty.dat"))
            .unwrap()
            .len(),
        1
    );

    // Another weight is added; what is there stays.
    let shards = fixture("every_kind.bin");
    let folder_of_shards = tempfile::tempdir().unwrap();
    let mut dict = Dict::new();
    let source = Weights::open(shards).unwrap();
    dict.push(
        "float32",
        Value::from(source.get("float32").unwrap().stored().clone()),
    );
    let only = folder_of_shards.path().join("only.bin");
    write_torch_file(&only, &dict.into()).unwrap();
    write_sharded(
        &Weights::open(&only).unwrap(),
        folder_of_shards.path(),
        ShardSize::default(),
    )
    .unwrap();
    let mut writer = OffloadWriter::create(folder.path()).unwrap();
    let file = folder_of_shards.path().join("model.safetensors");
    writer.refer(
        "kept",
        OffloadEntry::in_safetensors(file, "float32", Some(Dtype::F16)),
    );
    writer.finish().unwrap();

    let read = OffloadFolder::open(folder.path()).unwrap();
    assert_eq!(
        read.entries().map(|(name, _)| name).collect::<Vec<_>>(),
        [
            "layer.weight",
            "layer.scale",
            "layer.empty",
            "layer.mask",
            "kept"
        ]
    );
    let weight = read.get("layer.weight").unwrap().tensor;
    assert_eq!(
        (weight.dtype(), weight.shape(), weight.byte_len()),
        (Dtype::Bf16, &[2][..], 4)
    );
    assert_eq!(read.get("layer.scale").unwrap().tensor.shape(), [0usize; 0]);
    assert!(
        read.get("layer.empty")
            .unwrap()
            .tensor
            .bytes()
            .unwrap()
            .is_empty()
    );
    let kept = read.get("kept").unwrap();
    assert_eq!(
        (kept.tensor.shape(), kept.cast_to),
        (&[2, 3][..], Some(Dtype::F16))
    );
    assert!(matches!(
        read.get("weight"),
        Err(Error::TensorNotFound {
            nearest: Some(_),
            ..
        })
    ));
}

#[test]
fn offload_folders_that_lie_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let fault = |name: &str| match OffloadFolder::open(folder.path())
        .and_then(|read| read.get(name))
        .unwrap_err()
    {
        Error::Offload { fault, .. } => *fault,
        other => panic!("{other:?}"),
    };
    let index = |text: &str| fs::write(folder.path().join("index.json"), text).unwrap();
    index("[]");
    assert!(matches!(fault("a"), OffloadFault::NotAnIndex { .. }));
    index(
        r#"{"a": {"dtype": "float32", "shape": [2]}, "b": {"dtype": "decimal", "shape": []}, "../c": {"dtype": "int8", "shape": []}}"#,
    );
    fs::write(folder.path().join("a.dat"), [0; 7]).unwrap();
    assert!(matches!(
        fault("a"),
        OffloadFault::WrongSize {
            expected_bytes: 8,
            found_bytes: 7,
            ..
        }
    ));
    assert!(matches!(fault("b"), OffloadFault::UnknownDtype { .. }));
    assert!(matches!(fault("../c"), OffloadFault::Name { .. }));
    let mut writer = OffloadWriter::create(folder.path()).unwrap();
    assert!(writer.write("../c", Dtype::U8, &[1], &[1]).is_err());
    assert!(writer.write("d", Dtype::U8, &[2], &[1]).is_err());
}

const CHECK_FOLDERS: &str = r#"
import sys, torch
from pathlib import Path
from accelerate.utils import OffloadedWeightsLoader, offload_state_dict
from safetensors.torch import load_file
ours = OffloadedWeightsLoader(save_folder=sys.argv[1])
assert ours["layer.weight"].dtype == torch.bfloat16 and ours["layer.weight"].tolist() == [1.5, -2.0]
assert ours["layer.scale"].shape == () and ours["layer.scale"].item() == 2.5
assert ours["layer.mask"].tolist() == [[True, False, True]] and ours["layer.empty"].shape == (0, 3)
offload_state_dict(sys.argv[2], {"w": torch.arange(3.), "h": torch.ones(2, dtype=torch.bfloat16), "s": torch.tensor(7)})
from accelerate import load_checkpoint_in_model
model = torch.nn.Module()
model.first, model.second = torch.nn.Parameter(torch.zeros(5)), torch.nn.Parameter(torch.zeros(2, 2))
load_checkpoint_in_model(model, sys.argv[3])
assert model.first.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0], model.first
assert model.second.tolist() == [[-1.5, -0.5], [0.5, 1.5]], model.second
"#;

#[test]
fn parity_the_original_reads_our_folders_and_we_its_own() {
    let Some(python) = accelerate_testkit::parity_python("offload folders") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    offload(&path("ours"));
    let zero = ZeroCheckpoint::open(fixture("zero3"), None).unwrap();
    write_sharded(&zero, path("sharded"), "0.03KB".parse().unwrap()).unwrap();
    let arguments =
        ["ours", "theirs", "sharded"].map(|name| path(name).to_string_lossy().into_owned());
    let arguments: Vec<&str> = ["-c", CHECK_FOLDERS]
        .into_iter()
        .chain(arguments.iter().map(String::as_str))
        .collect();
    fixtures::run(&python, &arguments);
    let theirs = OffloadFolder::open(path("theirs")).unwrap();
    let bytes = |name| {
        theirs
            .get(name)
            .unwrap()
            .tensor
            .bytes()
            .unwrap()
            .into_owned()
    };
    assert_eq!(
        bytes("w"),
        [0.0f32, 1.0, 2.0].map(f32::to_le_bytes).concat()
    );
    assert_eq!(bytes("h"), [0x80, 0x3f, 0x80, 0x3f]);
    assert_eq!(bytes("s"), 7i64.to_le_bytes());
    let mut names = names_in(&path("theirs"));
    names.retain(|name| name.ends_with(".dat"));
    assert_eq!(names, ["h.dat", "s.dat", "w.dat"]);
}
