//! Thousands of damaged files: no parser panics, and none takes more memory than it should.
#![expect(
    clippy::unwrap_used,
    reason = "functions that tests share may fail like tests"
)]

mod fixtures;
#[path = "../fuzz/parsers.rs"]
mod parsers;

use std::fs;
use std::path::Path;

use accelerate_formats::manifest::{MANIFEST_FILE, Manifest, ManifestFile, Verify};
use accelerate_formats::step_records::{StepRecord, StepWriter};
use accelerate_formats::{PickleFault, TorchFault, TorchFile};
use fixtures::fixture;
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Files that are made of each fixture.
const ROUNDS: u64 = 250;
/// More than any parser needs for these small files, with all tests of this file at once.
const MOST_BYTES: usize = 64 << 20;

/// A generator that makes the same damage every time (SplitMix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Bytes that mean much to parsers: lengths, signs, operations of a pickle.
const TELLING: [u8; 16] = *b"\x00\x01\x7f\x80\xff(.cRQbtue0\x8a";

fn damage(bytes: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=chance.below(4) {
        let at = chance.below(bytes.len());
        match chance.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, TELLING[chance.below(TELLING.len())]),
            2 if !bytes.is_empty() => {
                bytes.remove(at);
            }
            3 => {
                let piece = bytes[at..]
                    .iter()
                    .take(1 + chance.below(40))
                    .copied()
                    .collect::<Vec<u8>>();
                let to = chance.below(bytes.len());
                drop(bytes.splice(to..to, piece));
            }
            4 if !bytes.is_empty() => bytes[at] ^= 1 << chance.below(8),
            _ if !bytes.is_empty() => bytes[at] = TELLING[chance.below(TELLING.len())],
            _ => {}
        }
    }
    bytes
}

fn bounded(what: &str, mut parse: impl FnMut()) {
    ALLOCATOR.reset_peak_usage();
    parse();
    let peak = ALLOCATOR.peak_usage();
    assert!(peak < MOST_BYTES, "{what}: {peak} bytes");
}

fn try_all(file: &Path, seed: u64, parse: fn(&Path, &[u8])) {
    let whole = fs::read(file).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut chance = Chance(seed);
    for round in 0..ROUNDS {
        let bytes = damage(&whole, &mut chance);
        bounded(&format!("{} in round {round}", file.display()), || {
            parse(folder.path(), &bytes)
        });
    }
}

#[test]
fn damaged_torch_files() {
    let files = [
        "every_kind.bin",
        "legacy.pt",
        "deflated.pt",
        "big_endian.pt",
        "nested.pt",
        "optimizer.bin",
    ];
    for (seed, file) in files.into_iter().enumerate() {
        try_all(&fixture(file), seed as u64, parsers::torch_file);
    }
}

#[test]
fn damaged_safetensors_files_and_indexes() {
    let folder = tempfile::tempdir().unwrap();
    let source = accelerate_formats::ZeroCheckpoint::open(fixture("zero2"), None).unwrap();
    accelerate_formats::write_sharded(&source, folder.path(), "0.03KB".parse().unwrap()).unwrap();
    try_all(
        &folder.path().join("model-00001-of-00003.safetensors"),
        1,
        parsers::safetensors,
    );
    try_all(
        &folder.path().join("model.safetensors.index.json"),
        2,
        parsers::index,
    );
}

/// Copies the files of a folder, damages one of them at a time, and lets the folder be read.
fn try_folder(whole: &Path, seed: u64, rounds: u64, read: fn(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    let mut names: Vec<_> = fs::read_dir(whole)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort_unstable();
    for name in &names {
        fs::copy(whole.join(name), folder.path().join(name)).unwrap();
    }
    let mut chance = Chance(seed);
    for round in 0..rounds {
        let hit = &names[chance.below(names.len())];
        let bytes = damage(&fs::read(whole.join(hit)).unwrap(), &mut chance);
        fs::write(folder.path().join(hit), bytes).unwrap();
        let what = format!("{} of {} in round {round}", hit.display(), whole.display());
        bounded(&what, || read(folder.path()));
        fs::copy(whole.join(hit), folder.path().join(hit)).unwrap();
    }
}

#[test]
fn damaged_distributed_checkpoints() {
    let whole = fixture("distributed");
    try_folder(&whole, 7, 3 * ROUNDS, parsers::distributed_folder);
}

#[test]
fn damaged_checkpoints_of_deepspeed() {
    for (name, tag) in [
        ("zero1_fp16", "global_step12"),
        ("zero2", "pytorch_model"),
        ("zero3", "pytorch_model"),
        ("zero3_fp16", "global_step12"),
    ] {
        let whole = fixture(name).join(tag);
        try_folder(&whole, 11, ROUNDS, parsers::zero_folder);
    }
}

#[test]
fn damaged_manifests() {
    let whole = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for name in ["model.safetensors", "optimizer.bin"] {
        fs::write(whole.path().join(name), name.repeat(20)).unwrap();
        files.push(ManifestFile::of(whole.path(), name).unwrap());
    }
    let manifest = Manifest::new(2, 7, files);
    manifest.write(whole.path()).unwrap();
    parsers::manifest_folder(whole.path());
    try_folder(whole.path(), 13, ROUNDS, parsers::manifest_folder);
    // Nothing of what was changed is taken for whole.
    let text = whole.path().join(MANIFEST_FILE);
    let damaged = fs::read_to_string(&text).unwrap();
    fs::write(
        &text,
        damaged.replace("\"iteration\": 7", "\"iteration\": 8"),
    )
    .unwrap();
    assert!(Manifest::verify(whole.path(), Verify::Sizes).is_err());
    // Nor is one read that never ends: the file has 8 GB of nothing.
    let endless = fs::File::create(&text).unwrap();
    endless.set_len(1 << 33).unwrap();
    bounded("an endless manifest", || {
        let error = Manifest::read(whole.path()).unwrap_err().to_string();
        assert!(error.contains("more than"), "{error}");
    });
}

#[test]
fn damaged_records_of_steps() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = StepWriter::create(folder.path(), 0).unwrap();
    for step in 1..4 {
        let record = StepRecord {
            step,
            losses: vec![1.5f64.to_bits(), f64::NAN.to_bits()],
            weights: vec![("a.weight".to_owned(), "0123".to_owned())],
            ..StepRecord::default()
        };
        writer.push(&record).unwrap();
    }
    try_all(&folder.path().join("rank_0.jsonl"), 17, parsers::records);
}

#[test]
fn damaged_offload_indexes() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("whole.json");
    fs::write(&index, r#"{"w": {"dtype": "float32", "shape": [2, 3]}, "s": {"safetensors_file": "a", "weight_name": "b"}}"#).unwrap();
    try_all(&index, 3, parsers::offload);
}

/// A pickle in PyTorch's old format, with no storages.
fn old_format(pickle: &[u8]) -> Vec<u8> {
    let head = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}.\x80\x02";
    [head, pickle, b".\x80\x02]."].concat()
}

fn pickle_fault(pickle: &[u8]) -> PickleFault {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb.pt");
    fs::write(&path, old_format(pickle)).unwrap();
    let mut fault = None;
    bounded("a bomb", || {
        fault = Some(TorchFile::open(&path).unwrap_err())
    });
    match fault.unwrap() {
        accelerate_formats::Error::Torch { fault, .. } => match *fault {
            TorchFault::Pickle { source } => source,
            other => unreachable!("{other:?}"),
        },
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn bombs_are_put_out() {
    // A list in a list in a list.
    let deep = [&b"]".repeat(5000)[..], &b"a".repeat(4999)].concat();
    assert!(matches!(pickle_fault(&deep), PickleFault::TooDeep { .. }));
    // A list that holds itself.
    assert!(matches!(
        pickle_fault(b"]q\x00h\x00a"),
        PickleFault::TooDeep { .. }
    ));
    // An array of numpy that is its own data.
    let own = b"cnumpy.core.multiarray\n_reconstruct\n)Rq\x00(K\x01)cnumpy\ndtype\nU\x02u1\x85R\x89h\x00tb";
    let fault = pickle_fault(own);
    assert!(matches!(fault, PickleFault::TooDeep { .. }), "{fault}");
    // Text of a million letters, a thousand times over.
    let mut text = b"]q\x00X\x40\x42\x0f\x00".to_vec();
    text.extend(b"x".repeat(1_000_000));
    text.extend(b"q\x01a");
    text.extend(b"h\x01a".repeat(1000));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("text.pt"), old_format(&text)).unwrap();
    let error = TorchFile::open(folder.path().join("text.pt")).unwrap_err();
    let cause = std::error::Error::source(&error)
        .and_then(|fault| fault.source())
        .unwrap();
    assert!(
        cause.to_string().contains("text, with all repetitions"),
        "{cause}"
    );
}
