//! Weights in one file, in several, and folders that hold none.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "functions that tests share may fail like tests"
)]

use std::error::Error as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use accelerate_formats::{
    Dict, Dtype, Error, HeaderFault, IndexFault, Metadata, MissingTensor, SafetensorsFile, Storage,
    StoredTensor, TensorData, Value, Weights, write_file, write_torch_file,
};

/// A file with one-byte tensors of these names; the value is the place in the list.
fn shard(folder: &Path, file: &str, names: &[&str]) {
    let values: Vec<u8> = (0..names.len() as u8).collect();
    let tensors = names
        .iter()
        .zip(&values)
        .map(|(name, value)| TensorData::new(name, Dtype::U8, &[1], std::slice::from_ref(value)));
    write_file(folder.join(file), tensors, &Metadata::pytorch()).unwrap();
}

fn index(folder: &Path, file: &str, map: &[(&str, &str)]) {
    let map: Vec<String> = map
        .iter()
        .map(|(tensor, shard)| format!(r#""{tensor}":"{shard}""#))
        .collect();
    let text = format!(
        r#"{{"metadata":{{"total_size":3}},"weight_map":{{{}}}}}"#,
        map.join(",")
    );
    fs::write(folder.join(file), text).unwrap();
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn index_fault(path: &Path) -> IndexFault {
    match Weights::open(path).unwrap_err() {
        Error::Index { fault, .. } => fault,
        other => panic!("{other:?}"),
    }
}

const INDEX: &str = "model.safetensors.index.json";

#[test]
fn one_file_by_name_and_by_folder() {
    let folder = folder();
    shard(folder.path(), "model.safetensors", &["b", "a"]);
    for path in [
        folder.path().to_owned(),
        folder.path().join("model.safetensors"),
    ] {
        let weights = Weights::open(&path).unwrap();
        assert_eq!(weights.path(), path);
        assert_eq!(weights.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            (weights.len(), weights.total_bytes(), weights.files().len()),
            (2, 2, 1)
        );
        assert_eq!(*weights.get("b").unwrap().bytes().unwrap(), [0]);
    }
}

#[test]
fn any_name_is_taken_for_a_file_that_is_named() {
    let folder = folder();
    shard(folder.path(), "0123abcd", &["a"]);
    assert_eq!(
        Weights::open(folder.path().join("0123abcd")).unwrap().len(),
        1
    );
}

#[test]
fn several_files_by_folder_and_by_index() {
    let folder = folder();
    shard(
        folder.path(),
        "model-00002-of-00002.safetensors",
        &["a", "also here"],
    );
    shard(
        folder.path(),
        "model-00001-of-00002.safetensors",
        &["x", "y"],
    );
    let map = [
        ("a", "model-00002-of-00002.safetensors"),
        ("x", "model-00001-of-00002.safetensors"),
        ("y", "model-00001-of-00002.safetensors"),
    ];
    index(folder.path(), INDEX, &map);
    for path in [folder.path().to_owned(), folder.path().join(INDEX)] {
        let weights = Weights::open(&path).unwrap();
        assert_eq!(
            weights.names().collect::<Vec<_>>(),
            ["x", "y", "a", "also here"]
        );
        assert_eq!(
            (weights.len(), weights.total_bytes(), weights.files().len()),
            (4, 4, 2)
        );
        assert_eq!(*weights.get("y").unwrap().bytes().unwrap(), [1]);
        assert!(
            weights
                .get("a")
                .unwrap()
                .file()
                .path()
                .ends_with("model-00002-of-00002.safetensors")
        );
    }
}

#[test]
fn the_only_index_of_another_name_is_taken() {
    let folder = folder();
    shard(folder.path(), "part.safetensors", &["a"]);
    index(
        folder.path(),
        "unet.safetensors.index.json",
        &[("a", "part.safetensors")],
    );
    assert_eq!(Weights::open(folder.path()).unwrap().len(), 1);

    index(
        folder.path(),
        "other.safetensors.index.json",
        &[("a", "part.safetensors")],
    );
    let error = Weights::open(folder.path()).unwrap_err();
    let Error::ManyIndexes { found, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(
        found,
        &[
            "other.safetensors.index.json",
            "unet.safetensors.index.json"
        ]
    );
}

#[test]
fn all_missing_files_are_named_at_once() {
    let folder = folder();
    shard(folder.path(), "1.safetensors", &["a"]);
    index(
        folder.path(),
        INDEX,
        &[
            ("a", "1.safetensors"),
            ("c", "3.safetensors"),
            ("b", "2.safetensors"),
        ],
    );
    let fault = index_fault(folder.path());
    let IndexFault::ShardsMissing { shards } = &fault else {
        panic!("{fault:?}")
    };
    assert_eq!(shards, &["2.safetensors", "3.safetensors"]);
    assert!(
        fault
            .to_string()
            .contains("`2.safetensors`, `3.safetensors`"),
        "{fault}"
    );
}

#[test]
fn all_missing_tensors_are_named_at_once() {
    let folder = folder();
    shard(folder.path(), "1.safetensors", &["a", "in the wrong file"]);
    shard(folder.path(), "2.safetensors", &["b"]);
    let map = [
        ("a", "1.safetensors"),
        ("b", "2.safetensors"),
        ("gone", "2.safetensors"),
        ("in the wrong file", "2.safetensors"),
    ];
    index(folder.path(), INDEX, &map);
    let fault = index_fault(folder.path());
    let IndexFault::TensorsMissing { missing } = &fault else {
        panic!("{fault:?}")
    };
    let expected = ["gone", "in the wrong file"].map(|tensor| MissingTensor {
        tensor: tensor.to_owned(),
        shard: "2.safetensors".to_owned(),
    });
    assert_eq!(missing, &expected);
    assert!(
        fault.to_string().contains("2 tensors are not in the file"),
        "{fault}"
    );
}

#[test]
fn the_index_decides_where_a_tensor_is_in_two_files() {
    let folder = folder();
    shard(folder.path(), "1.safetensors", &["a", "shared"]);
    shard(folder.path(), "2.safetensors", &["shared"]);
    index(
        folder.path(),
        INDEX,
        &[("a", "1.safetensors"), ("shared", "2.safetensors")],
    );
    let weights = Weights::open(folder.path()).unwrap();
    assert!(
        weights
            .get("shared")
            .unwrap()
            .file()
            .path()
            .ends_with("2.safetensors")
    );

    shard(folder.path(), "2.safetensors", &["b", "shared"]);
    index(
        folder.path(),
        INDEX,
        &[("a", "1.safetensors"), ("b", "2.safetensors")],
    );
    let fault = index_fault(folder.path());
    let IndexFault::Ambiguous {
        tensor,
        first,
        second,
    } = &fault
    else {
        panic!("{fault:?}")
    };
    assert_eq!(
        [tensor, first, second],
        ["shared", "1.safetensors", "2.safetensors"]
    );
}

#[test]
fn a_damaged_file_of_an_index_is_named() {
    let folder = folder();
    shard(folder.path(), "1.safetensors", &["a"]);
    fs::write(folder.path().join("2.safetensors"), b"short").unwrap();
    index(
        folder.path(),
        INDEX,
        &[("a", "1.safetensors"), ("b", "2.safetensors")],
    );
    let error = Weights::open(folder.path()).unwrap_err();
    let Error::Header {
        path,
        fault: HeaderFault::TooShort { found_bytes: 5 },
    } = &error
    else {
        panic!("{error:?}")
    };
    assert!(path.ends_with("2.safetensors"));
}

#[test]
fn an_index_cannot_lead_out_of_its_folder() {
    let folder = folder();
    shard(folder.path(), "secret.safetensors", &["a"]);
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    index(&inner, INDEX, &[("a", "../secret.safetensors")]);
    let fault = index_fault(&inner);
    assert!(
        matches!(&fault, IndexFault::ShardName { shard, .. } if shard == "../secret.safetensors"),
        "{fault}"
    );
}

#[test]
fn a_folder_without_weights_says_what_it_holds() {
    let folder = folder();
    for name in ["config.json", "model-00001-of-00002.safetensors"] {
        fs::write(folder.path().join(name), b"").unwrap();
    }
    let text = Weights::open(folder.path()).unwrap_err().to_string();
    for part in [
        "`model.safetensors`",
        "`model.safetensors.index.json`",
        "`config.json`",
        "`model-00001-of-00002.safetensors`",
    ] {
        assert!(text.contains(part), "{text}");
    }

    let empty = tempfile::tempdir().unwrap();
    let text = Weights::open(empty.path()).unwrap_err().to_string();
    assert!(text.ends_with("found nothing"), "{text}");
}

/// A torch file with one-byte tensors of these names; the value is 100 and the place in the list.
fn torch_shard(folder: &Path, file: &str, names: &[&str]) {
    let tensors = names.iter().zip(100u8..).map(|(&name, value)| {
        let storage = Arc::new(Storage::new([value]));
        let tensor = StoredTensor::contiguous(Dtype::U8, [1], storage).unwrap();
        (Value::from(name), Value::from(tensor))
    });
    let dict: Dict = tensors.collect();
    write_torch_file(folder.join(file), &dict.into()).unwrap();
}

#[test]
fn torch_files_are_read_like_others_and_come_first() {
    let folder = folder();
    let path = folder.path();
    let first = |path: &Path| {
        Weights::open(path)
            .unwrap()
            .tensors()
            .next()
            .unwrap()
            .bytes()
            .unwrap()[0]
    };
    shard(path, "1.safetensors", &["a"]);
    index(
        path,
        "model.safetensors.index.json",
        &[("a", "1.safetensors")],
    );
    assert_eq!(first(path), 0);
    shard(path, "model.safetensors", &["z", "a"]);
    let weights = Weights::open(path).unwrap();
    assert_eq!((weights.len(), weights.files()[0].is_torch()), (2, false));
    torch_shard(path, "pytorch_model.bin", &["a", "b", "c"]);
    fs::write(path.join("optimizer.bin"), b"of no concern").unwrap();
    let weights = Weights::open(path).unwrap();
    assert_eq!((weights.len(), first(path)), (3, 100));
    assert!(weights.files()[0].is_torch() && weights.files()[0].metadata().is_none());
    assert_eq!(weights.names().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(first(&path.join("model.safetensors")), 1);
    // What a file without an ending is, its first bytes tell.
    torch_shard(path, "0123abcd", &["x"]);
    assert_eq!(first(&path.join("0123abcd")), 100);
}

#[test]
fn sharded_torch_files_are_found_by_their_index() {
    let folder = folder();
    let path = folder.path();
    torch_shard(path, "pytorch_model-00001-of-00002.bin", &["a"]);
    torch_shard(
        path,
        "pytorch_model-00002-of-00002.bin",
        &["b", "left out of the index"],
    );
    let map = [
        ("a", "pytorch_model-00001-of-00002.bin"),
        ("b", "pytorch_model-00002-of-00002.bin"),
    ];
    index(path, "pytorch_model.bin.index.json", &map);
    let weights = Weights::open(path).unwrap();
    assert_eq!(
        (weights.len(), weights.files().len(), weights.total_bytes()),
        (3, 2, 3)
    );
    assert_eq!(*weights.get("b").unwrap().bytes().unwrap(), [100]);
    // A mixed index is unusual, but says what it means.
    shard(path, "more.safetensors", &["c"]);
    index(
        path,
        "pytorch_model.bin.index.json",
        &[map[0], ("c", "more.safetensors")],
    );
    assert_eq!(
        *Weights::open(path)
            .unwrap()
            .get("c")
            .unwrap()
            .bytes()
            .unwrap(),
        [0]
    );
}

#[test]
fn a_damaged_torch_file_is_named() {
    let folder = folder();
    let file = folder.path().join("pytorch_model.bin");
    fs::write(&file, b"PK\x03\x04").unwrap();
    for path in [folder.path(), file.as_path()] {
        let error = Weights::open(path).unwrap_err();
        assert!(
            matches!(&error, Error::Torch { path, .. } if *path == file),
            "{error:?}"
        );
    }
    let other = tempfile::tempdir().unwrap();
    index(other.path(), INDEX, &[("a", "1.bin")]);
    fs::write(other.path().join("1.bin"), b"").unwrap();
    assert!(matches!(
        Weights::open(other.path()).unwrap_err(),
        Error::Torch { .. }
    ));
}

#[test]
fn second_names_of_tied_tensors_are_known() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let metadata = Metadata::pytorch()
        .with("head.weight", "embed.weight")
        .with("gone", "absent");
    let tensor = TensorData::new("embed.weight", Dtype::U8, &[1], &[7]);
    write_file(&path, [tensor], &metadata).unwrap();
    let weights = Weights::open(&path).unwrap();
    assert_eq!(
        weights.aliases().collect::<Vec<_>>(),
        [("head.weight", "embed.weight")]
    );
    assert_eq!(weights.get("head.weight").unwrap().name(), "embed.weight");
    assert_eq!(weights.names().collect::<Vec<_>>(), ["embed.weight"]);
    assert!(weights.find("gone").is_none());
}

#[test]
fn a_path_that_is_not_there_is_named() {
    let folder = folder();
    let absent = folder.path().join("absent");
    let error = Weights::open(&absent).unwrap_err();
    assert!(
        matches!(&error, Error::Open { path, .. } if *path == absent),
        "{error:?}"
    );
    assert!(error.source().is_some());
}

#[test]
fn an_unknown_tensor_comes_with_the_nearest_name() {
    let folder = folder();
    shard(
        folder.path(),
        "model.safetensors",
        &["bert.pooler.bias", "x"],
    );
    let text = Weights::open(folder.path())
        .unwrap()
        .get("pooler.bias")
        .unwrap_err()
        .to_string();
    assert!(
        text.ends_with("; did you mean `bert.pooler.bias`?"),
        "{text}"
    );
    let file = SafetensorsFile::open(folder.path().join("model.safetensors")).unwrap();
    let error = file.tensor("nothing like it").unwrap_err();
    assert!(
        matches!(&error, Error::TensorNotFound { nearest: None, .. }),
        "{error:?}"
    );
    assert!(file.find("x").is_some() && file.find("nothing like it").is_none());
}

#[test]
fn bytes_outlive_the_weights_on_another_thread() {
    let folder = folder();
    shard(folder.path(), "model.safetensors", &["a", "b"]);
    let bytes = Weights::open(folder.path())
        .unwrap()
        .get("b")
        .unwrap()
        .to_owner()
        .unwrap();
    drop(folder);
    assert_eq!(
        std::thread::spawn(move || bytes.to_vec()).join().unwrap(),
        [1]
    );
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_is_named() {
    let folder = folder();
    let link = folder.path().join("model.safetensors");
    std::os::unix::fs::symlink("gone", &link).unwrap();
    let error = Weights::open(folder.path()).unwrap_err();
    assert!(
        matches!(&error, Error::Open { path, .. } if *path == link),
        "{error:?}"
    );
}
