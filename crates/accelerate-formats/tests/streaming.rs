//! Converting takes memory for one tensor, however many there are.
#![expect(
    clippy::unwrap_used,
    reason = "functions that tests share may fail like tests"
)]

use std::path::Path;
use std::sync::Arc;

use accelerate_formats::distributed::{ChunkToWrite, PathPart, write_description};
use accelerate_formats::sharded::DistributedPart;
use accelerate_formats::{
    Dict, DistributedCheckpoint, DistributedWriter, Dtype, Storage, StoredTensor, TorchWriter,
    Value, Weights, write_sharded,
};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const TENSORS: usize = 24;
const BYTES: usize = 1 << 19;
/// Twice a tensor, and the buffers of the files that are open.
const MOST_BYTES: usize = 2 * BYTES + (4 << 20);

fn peak(work: impl FnOnce()) -> usize {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    work();
    ALLOCATOR.peak_usage() - before
}

fn contents(tensor: usize) -> Vec<u8> {
    vec![tensor as u8; BYTES]
}

/// Two ranks with half of every tensor each.
fn write_distributed(folder: &Path) {
    let parts: Vec<_> = (0..2usize)
        .map(|rank| {
            let mut writer = DistributedWriter::create(folder, rank).unwrap();
            for tensor in 0..TENSORS {
                let path = [
                    PathPart::Key("model".into()),
                    PathPart::Key(format!("w{tensor}")),
                ];
                let chunk = ChunkToWrite {
                    name: &format!("model.w{tensor}"),
                    path: &path,
                    dtype: Dtype::U8,
                    shape: &[2, BYTES / 2],
                    offsets: &[rank, 0],
                    sizes: &[1, BYTES / 2],
                };
                writer
                    .write_chunk(chunk, &contents(tensor)[..BYTES / 2])
                    .unwrap();
            }
            writer.finish().unwrap()
        })
        .collect();
    write_description(folder, &parts).unwrap();
}

/// A torch file in which every tensor is a transposed view.
fn write_torch(path: &Path) {
    let tensors = (0..TENSORS).map(|tensor| {
        let storage = Arc::new(Storage::pending(BYTES));
        let turned = StoredTensor::strided(
            Dtype::U8,
            vec![BYTES / 2, 2],
            vec![1, BYTES / 2],
            0,
            storage,
        );
        (
            Value::from(format!("w{tensor}")),
            Value::from(turned.unwrap()),
        )
    });
    let dict: Dict = tensors.collect();
    let mut writer = TorchWriter::create(path, &dict.into()).unwrap();
    while let Some(pending) = writer.pending() {
        writer.write(&contents(pending.index)).unwrap();
    }
    writer.finish().unwrap();
}

fn check(folder: &Path) {
    let weights = Weights::open(folder).unwrap();
    assert_eq!(weights.files().len(), TENSORS / 2);
    for tensor in 0..TENSORS {
        let found = weights.get(&format!("w{tensor}")).unwrap();
        assert_eq!(*found.bytes().unwrap(), contents(tensor));
    }
}

/// One test, since the allocator counts for the whole process.
#[test]
fn one_tensor_is_in_memory_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let limit = "1.2MB".parse().unwrap();

    std::fs::create_dir(path("distributed")).unwrap();
    let peak_of_writing = peak(|| write_distributed(&path("distributed")));
    assert!(peak_of_writing < MOST_BYTES, "{peak_of_writing} bytes");
    let checkpoint = DistributedCheckpoint::open(path("distributed")).unwrap();
    let peak_of_merging = peak(|| {
        write_sharded(&DistributedPart::of(&checkpoint), path("merged"), limit).unwrap();
    });
    assert!(peak_of_merging < MOST_BYTES, "{peak_of_merging} bytes");
    check(&path("merged"));

    let peak_of_writing = peak(|| write_torch(&path("turned.bin")));
    assert!(peak_of_writing < MOST_BYTES, "{peak_of_writing} bytes");
    let weights = Weights::open(path("turned.bin")).unwrap();
    let peak_of_turning = peak(|| {
        write_sharded(&weights, path("rows"), limit).unwrap();
    });
    assert!(peak_of_turning < MOST_BYTES, "{peak_of_turning} bytes");
    check(&path("rows"));
}
