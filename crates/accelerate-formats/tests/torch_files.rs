//! Files of `torch.save`, as PyTorch wrote them, as we write them, and as nobody should.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "functions that tests share may fail like tests"
)]

mod fixtures;

use std::path::Path;
use std::sync::Arc;

use accelerate_formats::{
    Dict, Dtype, Error, LayoutFault, PickleFault, Storage, StoredTensor, TorchFault, TorchFile,
    TorchFormat, TorchWriter, Value, Weights, write_torch_file,
};
use fixtures::{Expected, expected, fixture, folder_of_fixtures};

fn fault(path: &Path) -> TorchFault {
    match TorchFile::open(path).unwrap_err() {
        Error::Torch { fault, path: named } => {
            assert_eq!(named, path);
            *fault
        }
        other => panic!("{other:?}"),
    }
}

fn pickle_fault(path: &Path) -> PickleFault {
    match fault(path) {
        TorchFault::Pickle { source } => source,
        other => panic!("{other:?}"),
    }
}

/// Compares every tensor with what PyTorch says it holds.
fn check(file: &Path, expected: &[Expected]) {
    let weights = Weights::open(file).unwrap();
    for Expected {
        name,
        dtype,
        shape,
        bytes,
    } in expected
    {
        let Some(tensor) = weights.find(name) else {
            // The big-endian file leaves views out.
            assert!(["turned", "row", "tied"].contains(&name.as_str()), "{name}");
            continue;
        };
        assert_eq!(
            (tensor.dtype(), tensor.shape()),
            (*dtype, shape.as_slice()),
            "{name}"
        );
        assert_eq!(
            &*tensor.bytes().unwrap(),
            bytes,
            "{name} in {}",
            file.display()
        );
        assert_eq!(&*tensor.to_owner().unwrap(), bytes, "{name}");
        assert_eq!(tensor.byte_len(), bytes.len());
    }
}

/// Everything that the files of `make.py` must hold.
fn check_folder(folder: &Path) {
    let expected = expected(folder, "every_kind");
    for file in [
        "every_kind.bin",
        "legacy.pt",
        "deflated.pt",
        "big_endian.pt",
    ] {
        check(&folder.join(file), &expected);
    }
    check_views(&folder.join("every_kind.bin"));
    check_views(&folder.join("legacy.pt"));
    check_nested(&folder.join("nested.pt"));
    check_optimizer(folder);
    for file in ["stranger.pt", "stranger_legacy.pt"] {
        let fault = pickle_fault(&folder.join(file));
        assert!(
            matches!(&fault, PickleFault::Refused { name } if name == "__main__.Stranger"),
            "{fault}"
        );
    }
}

fn check_views(file: &Path) {
    let weights = Weights::open(file).unwrap();
    let get = |name| weights.get(name).unwrap();
    for view in ["turned", "row", "tied"] {
        assert!(get(view).shares_storage_with(&get("base")), "{view}");
    }
    assert!(!get("float32").shares_storage_with(&get("base")));
    assert_eq!(
        (get("turned").strides(), get("turned").is_contiguous()),
        (&[1, 6][..], false)
    );
    assert_eq!(
        (get("row").offset(), get("row").is_contiguous()),
        (12, true)
    );
    assert_eq!(get("expanded").strides(), [1, 0]);
    assert!(get("parameter").is_parameter() && get("parameter").requires_grad());
    assert!(!get("base").is_parameter() && !get("base").requires_grad());
    assert!(matches!(
        get("row").bytes().unwrap(),
        std::borrow::Cow::Borrowed(_)
    ));
    let mapped = get("base").to_owner().unwrap();
    drop(weights);
    assert_eq!(mapped[4..8], 1.0f32.to_le_bytes());
}

fn check_nested(file: &Path) {
    let value = TorchFile::open(file).unwrap().into_value();
    let get = |key| value.get(key).unwrap_or_else(|| panic!("{key}"));
    assert!(matches!(get("none"), Value::None));
    let flags: Vec<_> = get("flags")
        .as_slice()
        .unwrap()
        .iter()
        .map(|v| v.as_bool())
        .collect();
    assert_eq!(flags, [Some(true), Some(false)]);
    let ints: Vec<i128> = get("ints")
        .as_slice()
        .unwrap()
        .iter()
        .map(|v| v.as_int().unwrap())
        .collect();
    let wanted = [
        0,
        255,
        65535,
        -1,
        (1 << 31) - 1,
        -(1 << 31),
        1 << 40,
        -(1 << 100),
        u64::MAX.into(),
    ];
    assert_eq!(ints, wanted);
    assert!(matches!(get("ints"), Value::Tuple(_)));
    assert_eq!(get("float").as_f64(), Some(-1.5));
    assert!(matches!(get("complex"), Value::Complex(1.0, 2.0)));
    assert_eq!(get("text").as_str(), Some("größer\n"));
    assert!(matches!(get("bytes"), Value::Bytes(bytes) if bytes == &[0, 255]));
    assert!(matches!(get("bytearray"), Value::Bytes(bytes) if bytes == b"ab"));
    for (key, item) in [("set", 3), ("frozen", 4)] {
        assert!(
            matches!(get(key), Value::Set(items) if items[0].as_int() == Some(item)),
            "{key}"
        );
    }
    assert!(matches!(get("size"), Value::Size(sizes) if sizes == &[2, 3]));
    assert!(matches!(get("dtype"), Value::Dtype(Dtype::Bf16)));
    assert!(matches!(get("device"), Value::Device { kind, index: Some(1) } if kind == "cuda"));
    assert!(matches!(get("cpu"), Value::Device { kind, index: None } if kind == "cpu"));
    let ordered = get("ordered").as_dict().unwrap();
    let keys: Vec<_> = ordered
        .iter()
        .map(|(key, _)| key.as_str().unwrap())
        .collect();
    assert_eq!(keys, ["b", "a"]);
    let deep = &get("deep").as_slice().unwrap()[0].as_slice().unwrap()[0];
    let deep = deep.get("x").unwrap().as_slice().unwrap()[0]
        .get("y")
        .unwrap();
    assert_eq!(
        *deep.as_slice().unwrap()[0]
            .as_tensor()
            .unwrap()
            .bytes()
            .unwrap(),
        1.0f32.to_le_bytes()
    );
    let (key, _) = value.as_dict().unwrap().iter().last().unwrap();
    assert_eq!(key.as_int(), Some(7));
}

fn check_optimizer(folder: &Path) {
    let state = TorchFile::open(folder.join("optimizer.bin"))
        .unwrap()
        .into_value();
    let entries = state.get("state").unwrap().as_dict().unwrap();
    for Expected { name, bytes, .. } in expected(folder, "optimizer") {
        let (index, field) = name.split_once('.').unwrap();
        let index = index.parse().ok();
        let (_, entry) = entries
            .iter()
            .find(|(key, _)| key.as_int() == index)
            .unwrap();
        let tensor = entry.get(field).unwrap().as_tensor().unwrap();
        assert_eq!(*tensor.bytes().unwrap(), bytes, "{name}");
    }
    let group = &state.get("param_groups").unwrap().as_slice().unwrap()[0];
    assert_eq!(group.get("lr").unwrap().as_f64(), Some(0.01));
    assert!(
        matches!(group.get("betas"), Some(Value::Tuple(betas)) if betas[0].as_f64() == Some(0.9))
    );
}

#[test]
fn what_pytorch_wrote_is_read_to_the_last_byte() {
    check_folder(&folder_of_fixtures());
    let format = |file| TorchFile::open(fixture(file)).unwrap().format();
    assert_eq!(format("legacy.pt"), TorchFormat::Legacy);
    assert_eq!(format("every_kind.bin"), TorchFormat::Zip);
}

#[test]
fn parity_what_pytorch_writes_now_is_read_too() {
    let Some(python) = accelerate_testkit::parity_python("torch files") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    fixtures::make(&python, folder.path());
    check_folder(folder.path());
}

/// One value of every kind, with a tied tensor and a view.
fn every_value() -> Value {
    let bytes: Vec<u8> = (0..6u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
    let storage = Arc::new(Storage::new(bytes));
    let base = StoredTensor::contiguous(Dtype::F32, [2, 3], Arc::clone(&storage)).unwrap();
    let turned =
        StoredTensor::strided(Dtype::F32, vec![3, 2], vec![1, 3], 0, Arc::clone(&storage)).unwrap();
    let small = StoredTensor::contiguous(
        Dtype::F8E4m3,
        [4],
        Arc::new(Storage::new(vec![0u8, 8, 16, 56])),
    );
    let array = StoredTensor::contiguous(
        Dtype::U32,
        [2],
        Arc::new(Storage::new(vec![1u8, 0, 0, 0, 2, 0, 0, 0])),
    );
    let wide = StoredTensor::contiguous(Dtype::C128, [1], Arc::new(Storage::new(vec![0u8; 16])));
    let dict = Dict::new()
        .with("base", base.clone())
        .with("turned", turned)
        .with("parameter", base.into_parameter(true))
        .with("small", small.unwrap())
        .with("wide", wide.unwrap())
        .with("none", Value::None)
        .with(
            "ints",
            vec![
                Value::from(-3),
                Value::from(u64::MAX),
                Value::Int(-(1 << 100)),
            ],
        )
        .with("pair", Value::Tuple(vec![true.into(), 0.5.into()]))
        .with("bytes", Value::Bytes(vec![0, 200]))
        .with("set", Value::Set(vec![1.into()]))
        .with("size", Value::Size(vec![4, 5]))
        .with("dtype", Value::Dtype(Dtype::F16))
        .with(
            "device",
            Value::Device {
                kind: "cuda".into(),
                index: Some(2),
            },
        )
        .with("complex", Value::Complex(0.5, -1.0))
        .with("array", Value::Array(Box::new(array.unwrap())))
        .with(3, Dict::new().with("text", "ü"));
    dict.into()
}

#[test]
fn what_we_write_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.bin");
    write_torch_file(&path, &every_value()).unwrap();
    let read = TorchFile::open(&path).unwrap().into_value();
    let tensor = |key| read.get(key).unwrap().as_tensor().unwrap();
    assert!(tensor("turned").shares_storage_with(tensor("base")));
    assert!(tensor("parameter").is_parameter() && !tensor("base").is_parameter());
    assert_eq!(tensor("turned").strides(), [1, 3]);
    assert!(tensor("base").to_owner().unwrap().is_aligned_to(64));
    // Values are shown with everything in them but addresses.
    let (ours, theirs) = (every_value(), read.clone());
    assert_eq!(format!("{theirs:?}"), format!("{ours:?}"));
    for ((_, ours), (_, theirs)) in every_value()
        .as_dict()
        .unwrap()
        .iter()
        .zip(read.as_dict().unwrap().iter())
    {
        if let (
            Value::Tensor(ours) | Value::Array(ours),
            Value::Tensor(theirs) | Value::Array(theirs),
        ) = (ours, theirs)
        {
            assert_eq!(ours.bytes().unwrap(), theirs.bytes().unwrap());
        }
    }
    // Whoever writes the same twice gets the same file.
    let again = folder.path().join("again");
    std::fs::create_dir(&again).unwrap();
    write_torch_file(again.join("state.bin"), &every_value()).unwrap();
    assert_eq!(
        std::fs::read(&path).unwrap(),
        std::fs::read(again.join("state.bin")).unwrap()
    );
}

const READ_OURS: &str = r#"
import sys, torch, numpy
from numpy._core.multiarray import _reconstruct
torch.serialization.add_safe_globals([_reconstruct, numpy.ndarray, numpy.dtype, type(numpy.dtype(numpy.uint32))])
for mmap in (False, True):
    v = torch.load(sys.argv[1], weights_only=True, mmap=mmap)
    base = torch.arange(6.).reshape(2, 3)
    assert torch.equal(v["base"], base) and torch.equal(v["turned"], base.t())
    assert v["turned"].untyped_storage().data_ptr() == v["base"].untyped_storage().data_ptr()
    assert isinstance(v["parameter"], torch.nn.Parameter) and v["parameter"].requires_grad
    assert v["small"].dtype == torch.float8_e4m3fn and v["small"].float().tolist() == [0.0, 2**-6, 2**-5, 1.0]
    assert v["wide"].dtype == torch.complex128
    assert v["none"] is None and v["ints"] == [-3, 2**64 - 1, -(2**100)] and v["pair"] == (True, 0.5)
    assert v["bytes"] == b"\x00\xc8" and v["set"] == {1} and v["size"] == torch.Size([4, 5])
    assert v["dtype"] == torch.float16 and v["device"] == torch.device("cuda", 2) and v["complex"] == 0.5 - 1j
    assert v["array"].dtype == numpy.uint32 and v["array"].tolist() == [1, 2] and v[3] == {"text": "ü"}
streamed = torch.load(sys.argv[2], weights_only=True)
assert streamed["a"].tolist() == [1, 2] and streamed["b"].tolist() == [[3.0, 4.0]] and streamed["c"] is not None
"#;

#[test]
fn parity_pytorch_reads_what_we_write() {
    let Some(python) = accelerate_testkit::parity_python("torch files") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (whole, streamed) = (
        folder.path().join("state.bin"),
        folder.path().join("streamed.bin"),
    );
    write_torch_file(&whole, &every_value()).unwrap();
    stream(&streamed);
    fixtures::run(
        &python,
        &[
            "-c",
            READ_OURS,
            whole.to_str().unwrap(),
            streamed.to_str().unwrap(),
        ],
    );
}

/// A file whose storages come one after another.
fn stream(path: &Path) {
    let pending = |dtype, shape: &[usize], bytes| {
        StoredTensor::contiguous(dtype, shape, Arc::new(Storage::pending(bytes))).unwrap()
    };
    let here = StoredTensor::contiguous(Dtype::U8, [1], Arc::new(Storage::new(vec![9u8]))).unwrap();
    let value = Dict::new()
        .with("a", pending(Dtype::I64, &[2], 16))
        .with("c", here)
        .with("b", pending(Dtype::F32, &[1, 2], 8));
    let mut writer = TorchWriter::create(path, &value.into()).unwrap();
    let next = writer.pending().unwrap();
    assert_eq!((next.index, next.bytes), (0, 16));
    let error = writer.write(&[0; 8]).unwrap_err();
    assert!(matches!(error, Error::TorchUnwritable { .. }), "{error}");
    writer
        .write(&[1i64, 2].map(i64::to_le_bytes).concat())
        .unwrap();
    assert_eq!(writer.pending().unwrap().index, 2);
    assert!(!path.exists());
    writer
        .write(&[3.0f32, 4.0].map(f32::to_le_bytes).concat())
        .unwrap();
    assert!(writer.pending().is_none() && writer.write(&[]).is_err());
    writer.finish().unwrap();
}

#[test]
fn storages_are_written_one_after_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("streamed.bin");
    stream(&path);
    let read = TorchFile::open(&path).unwrap().into_state_dict().unwrap();
    let names: Vec<&str> = read.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "c", "b"]);
    assert_eq!(
        *read[0].1.bytes().unwrap(),
        [1i64, 2].map(i64::to_le_bytes).concat()
    );

    // Whoever stops half-way leaves nothing.
    let other = folder.path().join("other.bin");
    let storage = Arc::new(Storage::pending(1));
    let tensor = StoredTensor::contiguous(Dtype::U8, [1], storage).unwrap();
    assert!(matches!(
        tensor.bytes().unwrap_err(),
        Error::PendingStorage { bytes: 1 }
    ));
    let writer = TorchWriter::create(&other, &tensor.into()).unwrap();
    assert!(writer.finish().is_err());
    assert!(!other.exists());
}

#[test]
fn what_is_no_torch_file_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let with = |bytes: &[u8]| {
        let path = folder.path().join("file.bin");
        std::fs::write(&path, bytes).unwrap();
        fault(&path)
    };
    assert!(matches!(with(b""), TorchFault::NotTorch));
    assert!(matches!(with(b"PK\x03\x04"), TorchFault::Zip { .. }));
    assert!(matches!(
        with(b"version https://git-lfs.github.com/spec/v1"),
        TorchFault::GitLfsPointer
    ));
    let mut tar = vec![0; 512];
    tar[257..262].copy_from_slice(b"ustar");
    assert!(matches!(with(&tar), TorchFault::Tar));
    let whole = std::fs::read(fixture("legacy.pt")).unwrap();
    assert!(matches!(
        with(&whole[..whole.len() - 1]),
        TorchFault::Legacy { what: "the end" }
    ));
}

#[test]
fn a_file_that_is_no_state_dict_says_where_one_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint.ckpt");
    let tensor =
        StoredTensor::contiguous(Dtype::U8, [1], Arc::new(Storage::new(vec![9u8]))).unwrap();
    let inner = Dict::new().with("weight", tensor);
    write_torch_file(
        &path,
        &Dict::new()
            .with("epoch", 3)
            .with("state_dict", inner)
            .into(),
    )
    .unwrap();
    let error = Weights::open(&path).unwrap_err();
    let Error::Torch { fault, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(
        fault.to_string(),
        "expected a dict from name to tensor, found an int under `epoch`: the weights seem to be in \
         `state_dict`: save that part alone"
            .replacen(": the", "; the", 1)
    );
}

#[test]
fn a_tensor_that_repeats_itself_too_often_is_refused() {
    let fault = StoredTensor::strided(
        Dtype::F32,
        vec![1 << 30],
        vec![0],
        0,
        Arc::new(Storage::new(vec![0u8; 4])),
    )
    .unwrap_err();
    assert!(matches!(fault, LayoutFault::Expanded { .. }), "{fault}");
}
