//! The layout to the byte, and what happens when it cannot be written.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use safetensors::tensor::TensorView;

use super::*;

fn target() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    (folder, path)
}

fn is_empty(folder: &tempfile::TempDir) -> bool {
    std::fs::read_dir(folder.path()).unwrap().next().is_none()
}

fn header(name: &str, dtype: Dtype, shape: &[usize]) -> TensorHeader {
    TensorHeader {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
    }
}

fn fault_of(tensors: &[TensorData<'_>]) -> WriteFault {
    let (folder, path) = target();
    match write_file(&path, tensors.iter().copied(), &Metadata::new()).unwrap_err() {
        Error::Unwritable { path: named, fault } => {
            assert_eq!(named, path);
            assert!(is_empty(&folder), "something is left");
            fault
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tiny_file_to_the_byte() {
    let (_folder, path) = target();
    let tensors = [
        TensorData::new("b", Dtype::U8, &[3], &[7, 8, 9]),
        TensorData::new("a", Dtype::F32, &[1, 1], &[1, 2, 3, 4]),
    ];
    write_file(&path, tensors, &Metadata::pytorch()).unwrap();
    let json: &[u8] = br#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}}"#;
    let padding = b" ".repeat(json.len().next_multiple_of(8) - json.len());
    let expected = [
        &[144, 0, 0, 0, 0, 0, 0, 0],
        json,
        &padding,
        &[1, 2, 3, 4, 7, 8, 9],
    ]
    .concat();
    assert_eq!(std::fs::read(path).unwrap(), expected);
}

#[test]
fn no_tensors_and_no_metadata() {
    let (_folder, path) = target();
    write_file(&path, [], &Metadata::new()).unwrap();
    assert_eq!(std::fs::read(path).unwrap(), b"\x08\0\0\0\0\0\0\0{}      ");
}

#[test]
fn the_bytes_are_those_of_the_safetensors_crate_in_whatever_order_tensors_come() {
    let data = [0u8; 16];
    let shape: &[usize] = &[2];
    let make = |(name, dtype): (&'static str, Dtype)| {
        TensorData::new(name, dtype, shape, &data[..dtype.size_in_bits() / 4])
    };
    let mut tensors = [
        ("z", Dtype::F16),
        ("k", Dtype::F32),
        ("b", Dtype::I64),
        ("a \"quoted\" é", Dtype::U8),
        ("e", Dtype::F32),
        ("m", Dtype::Bf16),
        ("half", Dtype::F4),
    ]
    .map(make);
    let views = tensors.map(|t| {
        (
            t.name,
            TensorView::new(t.dtype.to_file().unwrap(), t.shape.to_vec(), t.bytes).unwrap(),
        )
    });
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let expected = safetensors::serialize(views, Some(metadata)).unwrap();

    let (_folder, path) = target();
    for _ in 0..tensors.len() {
        tensors.rotate_left(1);
        write_file(&path, tensors, &Metadata::pytorch()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), expected);
    }
}

#[test]
fn many_metadata_pairs_are_sorted() {
    let (_folder, path) = target();
    let pairs = (0..20).rev().map(|n| (format!("key{n:02}"), n.to_string()));
    write_file(&path, [], &pairs.collect()).unwrap();
    let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()[8..]).into_owned();
    let places: Vec<_> = (0..20)
        .map(|n| text.find(&format!("key{n:02}")).unwrap())
        .collect();
    assert!(places.is_sorted(), "{text}");
}

#[test]
fn tensors_that_make_no_file() {
    let a = TensorData::new("a", Dtype::U8, &[1], &[0]);
    let twice = fault_of(&[a, TensorData::new("a", Dtype::F32, &[0], &[])]);
    assert!(
        matches!(&twice, WriteFault::DuplicateName { tensor } if tensor == "a"),
        "{twice}"
    );

    let reserved = fault_of(&[TensorData::new("__metadata__", Dtype::U8, &[1], &[0])]);
    assert!(
        matches!(reserved, WriteFault::ReservedName { .. }),
        "{reserved}"
    );

    let short = fault_of(&[a, TensorData::new("w", Dtype::F32, &[2], &[0; 7])]);
    assert!(
        matches!(&short, WriteFault::WrongSize { tensor, expected_bytes: 8, found_bytes: 7, .. } if tensor == "w"),
        "{short}"
    );

    let packed = fault_of(&[TensorData::new("w", Dtype::F4, &[3], &[0; 2])]);
    assert!(matches!(packed, WriteFault::PartialByte { .. }), "{packed}");

    let huge = fault_of(&[TensorData::new("w", Dtype::F32, &[usize::MAX], &[])]);
    assert!(matches!(huge, WriteFault::SizeOverflow { .. }), "{huge}");
    let most = [usize::MAX / 8];
    let together: Vec<_> = (0..9)
        .map(|n| header(&n.to_string(), Dtype::U8, &most))
        .collect();
    assert!(matches!(
        plan(together),
        Err(WriteFault::SizeOverflow { .. })
    ));
}

#[test]
fn a_header_over_the_limit_is_refused() {
    let planned = plan([header("a", Dtype::U8, &[0])]).unwrap();
    let length = header_bytes(&planned, &Metadata::new(), 1000)
        .unwrap()
        .len() as u64
        - 8;
    assert!(header_bytes(&planned, &Metadata::new(), length).is_ok());
    let fault = header_bytes(&planned, &Metadata::new(), length - 1).unwrap_err();
    let WriteFault::HeaderTooLong {
        header_bytes,
        limit_bytes,
    } = fault
    else {
        panic!("{fault:?}")
    };
    assert_eq!((header_bytes, limit_bytes), (length, length - 1));
}

#[test]
fn a_tensor_out_of_turn_does_no_harm() {
    let (_folder, path) = target();
    let headers = [header("a", Dtype::U8, &[1]), header("b", Dtype::U8, &[1])];
    let mut writer = SafetensorsWriter::create(&path, headers, &Metadata::new()).unwrap();
    let Error::Unwritable {
        fault: WriteFault::OutOfOrder { expected, found },
        ..
    } = writer.write("b", &[2]).unwrap_err()
    else {
        panic!("another error")
    };
    assert_eq!((expected.as_deref(), found.as_str()), (Some("a"), "b"));
    writer.write("a", &[1]).unwrap();
    writer.write("b", &[2]).unwrap();
    assert!(writer.pending().is_none());
    assert!(writer.write("c", &[3]).is_err());
    writer.finish().unwrap();
    assert!(std::fs::read(&path).unwrap().ends_with(&[1, 2]));
}

#[test]
fn an_unfinished_file_leaves_nothing() {
    let (folder, path) = target();
    let headers = [header("a", Dtype::U8, &[1]), header("b", Dtype::U8, &[1])];
    let mut writer = SafetensorsWriter::create(&path, headers, &Metadata::new()).unwrap();
    writer.write("a", &[1]).unwrap();
    let error = writer.finish().unwrap_err();
    let Error::Unwritable {
        fault: WriteFault::Unfinished { missing: 1, next },
        ..
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(next, "b");
    assert!(is_empty(&folder));
}

/// A full disk: the partial file is a link to a device that takes no byte.
#[cfg(target_os = "linux")]
fn on_a_full_disk(path: &Path) -> Result<AtomicFile> {
    AtomicFile::create_with(path, |partial| {
        std::os::unix::fs::symlink("/dev/full", partial)?;
        File::options().write(true).open(partial)
    })
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_while_writing_leaves_nothing() {
    let (folder, path) = target();
    let large = 4 << 20;
    let headers = [header("a", Dtype::U8, &[large])];
    let mut writer =
        SafetensorsWriter::create_with(&path, headers, &Metadata::new(), on_a_full_disk).unwrap();
    let error = writer.write("a", &vec![0; large]).unwrap_err();
    let Error::Write {
        path: named,
        source,
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!((named, source.kind()), (&path, io::ErrorKind::StorageFull));
    assert!(
        is_empty(&folder),
        "the partial file is gone before the writer is"
    );

    let again = writer.write("a", &vec![0; large]).unwrap_err();
    assert!(
        matches!(
            again,
            Error::Unwritable {
                fault: WriteFault::GivenUp,
                ..
            }
        ),
        "{again}"
    );
    let finish = writer.finish().unwrap_err();
    assert!(
        matches!(
            finish,
            Error::Unwritable {
                fault: WriteFault::GivenUp,
                ..
            }
        ),
        "{finish}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_while_finishing_keeps_the_old_file() {
    let (folder, path) = target();
    std::fs::write(&path, b"old").unwrap();
    let headers = [header("a", Dtype::U8, &[1])];
    let mut writer =
        SafetensorsWriter::create_with(&path, headers, &Metadata::new(), on_a_full_disk).unwrap();
    writer.write("a", &[1]).unwrap();
    let error = writer.finish().unwrap_err();
    assert!(
        matches!(&error, Error::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull),
        "{error:?}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
