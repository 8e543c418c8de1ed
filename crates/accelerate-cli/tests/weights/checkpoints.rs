//! Checkpoints to work on: fixtures that PyTorch wrote, and small ones made on the spot.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use accelerate_formats::{
    Dict, DistributedWriter, Dtype, Metadata, Storage, StoredTensor, TensorData, Value,
    distributed::{ChunkToWrite, PathPart, write_description},
    write_file, write_torch_file,
};

/// A file or folder beside the tests of `accelerate-formats`.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../accelerate-formats/tests/fixtures")
        .join(name)
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// Everything in a folder: names and contents, sorted.
pub(crate) fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap();
    let mut found: Vec<(String, Vec<u8>)> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read(&path).unwrap_or_default())
        })
        .collect();
    found.sort();
    found
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    contents(folder).into_iter().map(|(name, _)| name).collect()
}

pub(crate) fn floats(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// A safetensors file of these singles.
pub(crate) fn singles(path: &Path, tensors: &[(&str, &[f32])]) {
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|(_, numbers)| floats(numbers)).collect();
    let shapes: Vec<[usize; 1]> = tensors.iter().map(|(_, numbers)| [numbers.len()]).collect();
    let data = tensors
        .iter()
        .zip(bytes.iter().zip(&shapes))
        .map(|((name, _), (bytes, shape))| TensorData::new(name, Dtype::F32, shape, bytes));
    write_file(path, data, &Metadata::pytorch()).unwrap();
}

/// A tensor of singles, for a file of `torch.save`.
pub(crate) fn tensor(shape: &[usize], numbers: &[f32]) -> StoredTensor {
    let storage = Arc::new(Storage::new(floats(numbers)));
    StoredTensor::contiguous(Dtype::F32, shape, storage).unwrap()
}

/// A state dict in which `head` is tied to `embed`, and `turned` lies in columns.
pub(crate) fn tied_torch_file(path: &Path) {
    let embed = tensor(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let storage = Arc::new(Storage::new(floats(&[1.0, 3.0, 2.0, 4.0])));
    let turned = StoredTensor::strided(Dtype::F32, vec![2, 2], vec![1, 2], 0, storage).unwrap();
    let dict = Dict::new()
        .with("embed", embed.clone())
        .with("turned", turned)
        .with("head", embed);
    write_torch_file(path, &Value::from(dict)).unwrap();
}

/// The folder of a model that two ranks saved: `model.weight` cut by rows, `model.wide` by columns,
/// `model.step` on one rank. `extra` is saved beside it where it is given.
pub(crate) fn two_ranks(folder: &Path, rows: usize, extra: Option<&str>) {
    fs::create_dir_all(folder).unwrap();
    let numbers: Vec<f32> = (0..rows * 4).map(|n| n as f32 / 8.0).collect();
    let half = rows.div_ceil(2);
    let parts: Vec<_> = (0..2usize)
        .map(|rank| {
            let mut writer = DistributedWriter::create(folder, rank).unwrap();
            let (begin, height) = if rank == 0 {
                (0, half)
            } else {
                (half, rows - half)
            };
            let mut put =
                |name: &str, shape: &[usize], offsets: &[usize], sizes: &[usize], bytes: &[u8]| {
                    let path = ["model", name].map(|key| PathPart::Key(key.to_owned()));
                    let chunk = ChunkToWrite {
                        name: &format!("model.{name}"),
                        path: &path,
                        dtype: Dtype::F32,
                        shape,
                        offsets,
                        sizes,
                    };
                    writer.write_chunk(chunk, bytes).unwrap();
                };
            let part = &numbers[begin * 4..(begin + height) * 4];
            put(
                "weight",
                &[rows, 4],
                &[begin, 0],
                &[height, 4],
                &floats(part),
            );
            let column = [1.0 + rank as f32, 3.0 + rank as f32];
            put("wide", &[2, 2], &[0, rank], &[2, 1], &floats(&column));
            if rank == 1 {
                put("step", &[], &[], &[], &floats(&[7.0]));
            }
            if let (Some(extra), 0) = (extra, rank) {
                let path = extra.split('.').map(|key| PathPart::Key(key.to_owned()));
                let path: Vec<PathPart> = path.collect();
                writer.write_value(extra, &path, &Value::from(0.5)).unwrap();
            }
            writer.finish().unwrap()
        })
        .collect();
    write_description(folder, &parts).unwrap();
}
