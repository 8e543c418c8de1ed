//! Every parser of the crate on bytes from anywhere. None may panic, hang, or take more memory than
//! its limits say; what they answer does not matter.
//!
//! The fuzz targets call these with what the fuzzer makes, and the test `damaged` with mutated
//! fixtures. From the folder above, with a nightly compiler:
//! `cargo fuzz run torch_file -- -rss_limit_mb=2048`
#![allow(dead_code, clippy::allow_attributes, reason = "each target uses one")]

use std::fs;
use std::path::Path;

use accelerate_formats::manifest::{MANIFEST_FILE, Manifest, Verify};
use accelerate_formats::{
    DistributedCheckpoint, OffloadFolder, SafetensorsFile, ShardIndex, StoredTensor, TensorSource,
    TorchFile, Value, Weights, ZeroCheckpoint, step_records,
};

/// Tensors that claim to be larger are looked at, but not read.
const READ_BYTES: usize = 1 << 20;

/// Writes the bytes where a parser looks for them. A full disk is no fault of the parser.
fn put(folder: &Path, name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = folder.join(name);
    drop(fs::write(&path, bytes));
    path
}

fn read(tensor: &StoredTensor) {
    if tensor.byte_len() <= READ_BYTES
        && let Ok(bytes) = tensor.bytes()
    {
        assert_eq!(bytes.len(), tensor.byte_len());
    }
}

fn walk(value: &Value) {
    match value {
        Value::Tensor(tensor) | Value::Array(tensor) => read(tensor),
        Value::List(items) | Value::Tuple(items) | Value::Set(items) => items.iter().for_each(walk),
        Value::Dict(dict) => dict.iter().for_each(|(key, value)| {
            walk(key);
            walk(value);
        }),
        _ => {}
    }
}

/// A file of `torch.save`, also as weights.
pub(crate) fn torch_file(folder: &Path, bytes: &[u8]) {
    let path = put(folder, "file.bin", bytes);
    if let Ok(file) = TorchFile::open(&path) {
        walk(file.value());
    }
    if let Ok(weights) = Weights::open(&path) {
        weights.tensors().for_each(|tensor| read(&tensor));
    }
}

/// A safetensors file.
pub(crate) fn safetensors(folder: &Path, bytes: &[u8]) {
    let path = put(folder, "model.safetensors", bytes);
    if let Ok(file) = SafetensorsFile::open(&path) {
        for tensor in file.tensors() {
            assert_eq!(tensor.bytes().len(), tensor.range().len());
        }
    }
}

/// The index of sharded weights.
pub(crate) fn index(folder: &Path, bytes: &[u8]) {
    let path = put(folder, "model.safetensors.index.json", bytes);
    drop(ShardIndex::read(&path));
    drop(Weights::open(folder));
}

/// The description of a distributed checkpoint; files of ranks may lie beside it.
pub(crate) fn distributed(folder: &Path, bytes: &[u8]) {
    put(folder, ".metadata", bytes);
    distributed_folder(folder);
}

/// A whole distributed checkpoint.
pub(crate) fn distributed_folder(folder: &Path) {
    let Ok(checkpoint) = DistributedCheckpoint::open(folder) else {
        return;
    };
    let mut out = Vec::new();
    for tensor in checkpoint.tensors() {
        let bytes = tensor
            .dtype()
            .bits_of(tensor.shape())
            .map_or(usize::MAX, |bits| bits / 8);
        if bytes <= READ_BYTES && checkpoint.read_into(tensor.name(), &mut out).is_ok() {
            assert_eq!(out.len(), bytes);
        }
    }
    for name in checkpoint.value_names() {
        if let Ok(value) = checkpoint.value(name) {
            walk(&value);
        }
    }
}

/// The optimizer states of one rank of DeepSpeed; the model states may lie beside them.
pub(crate) fn zero(folder: &Path, bytes: &[u8]) {
    put(folder, "zero_pp_rank_0_mp_rank_00_optim_states.pt", bytes);
    zero_folder(folder);
}

/// A whole checkpoint of DeepSpeed.
pub(crate) fn zero_folder(folder: &Path) {
    let Ok(checkpoint) = ZeroCheckpoint::open(folder, None) else {
        return;
    };
    let mut out = Vec::new();
    for tensor in checkpoint.tensors() {
        let bytes = tensor
            .dtype
            .bits_of(&tensor.shape)
            .map_or(usize::MAX, |bits| bits / 8);
        if bytes <= READ_BYTES && checkpoint.read_into(&tensor.name, &mut out).is_ok() {
            assert_eq!(out.len(), bytes);
        }
    }
}

/// The index of an offload folder.
pub(crate) fn offload(folder: &Path, bytes: &[u8]) {
    put(folder, "index.json", bytes);
    if let Ok(read_folder) = OffloadFolder::open(folder) {
        for (name, _) in read_folder.entries() {
            if let Ok(weight) = read_folder.get(name) {
                read(&weight.tensor);
            }
        }
    }
}

/// The manifest of a saved state; the files that it names may lie beside it.
pub(crate) fn manifest(folder: &Path, bytes: &[u8]) {
    put(folder, MANIFEST_FILE, bytes);
    manifest_folder(folder);
}

/// A whole folder of a saved state.
pub(crate) fn manifest_folder(folder: &Path) {
    drop(Manifest::verify(folder, Verify::Hashes));
}

/// What one rank recorded of its steps.
pub(crate) fn records(folder: &Path, bytes: &[u8]) {
    put(folder, "rank_0.jsonl", bytes);
    if let Ok(ranks) = step_records::read(folder) {
        assert_eq!(ranks.len(), 1);
    }
}
