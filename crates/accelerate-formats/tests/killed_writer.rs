//! A writer that dies half-way, and folders that cannot be written.
#![expect(
    clippy::unwrap_used,
    reason = "functions that tests share may fail like tests"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use accelerate_formats::{
    Dtype, Error, Metadata, SafetensorsWriter, TensorData, TensorHeader, write_file,
};

const TARGET: &str = "KILLED_WRITER_TARGET";

/// The part that runs in a process of its own and dies between two tensors.
#[test]
fn dying_process() {
    let Some(path) = std::env::var_os(TARGET).map(PathBuf::from) else {
        return;
    };
    let large = 3 << 20;
    let headers = ["a", "b"].map(|name| TensorHeader {
        name: name.to_owned(),
        dtype: Dtype::U8,
        shape: vec![large],
    });
    let mut writer = SafetensorsWriter::create(path, headers, &Metadata::new()).unwrap();
    writer.write("a", &vec![1; large]).unwrap();
    std::process::abort();
}

fn die_while_writing(path: &Path) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    let died = child
        .args(["--exact", "dying_process"])
        .env(TARGET, path)
        .output()
        .unwrap();
    assert!(!died.status.success());
}

#[test]
fn a_killed_writer_leaves_the_target_absent_or_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    die_while_writing(&path);
    assert!(!path.exists());
    let left = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = left.collect();
    assert_eq!(left.len(), 1, "the test must die while writing: {left:?}");
    assert!(
        left[0].starts_with(".model.safetensors.") && left[0].ends_with(".partial"),
        "{left:?}"
    );

    write_file(
        &path,
        [TensorData::new("old", Dtype::U8, &[1], &[7])],
        &Metadata::new(),
    )
    .unwrap();
    let before = fs::read(&path).unwrap();
    die_while_writing(&path);
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_folder_that_is_not_there_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("absent").join("model.safetensors");
    let error = write_file(&path, [], &Metadata::new()).unwrap_err();
    let Error::Write {
        path: named,
        source,
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(
        (named, source.kind()),
        (&path, std::io::ErrorKind::NotFound)
    );
    assert!(error.to_string().contains("model.safetensors"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_folder_that_is_read_only_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(folder.path().join("probe"), b"").is_ok() {
        eprintln!("skipped: this user may write to read-only folders");
        return;
    }
    let error = write_file(
        folder.path().join("model.safetensors"),
        [],
        &Metadata::new(),
    )
    .unwrap_err();
    assert!(
        matches!(&error, Error::Write { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied),
        "{error:?}"
    );
}
