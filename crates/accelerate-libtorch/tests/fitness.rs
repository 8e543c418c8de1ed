//! Fake libtorch folders, each wrong in one way, and the message each one gives.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    reason = "a fake folder that cannot be made is a failed test"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use accelerate_libtorch::{CxxAbi, Error, Libtorch, Origin, Settings};
use tempfile::TempDir;

const NEW_SYMBOL: &str = "_ZN3c105ErrorC1ENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
const OLD_SYMBOL: &str = "_ZN3c105ErrorC1ESs";

/// The bytes of the smallest ELF library that needs `needed` and looks in `search_path`.
fn library(needed: &[&str], search_path: &str, symbols: &[&str]) -> Vec<u8> {
    let mut strings = vec![0_u8];
    let mut entries: Vec<(u64, u64)> = Vec::new();
    let mut add = |text: &str| {
        let at = strings.len() as u64;
        strings.extend(text.as_bytes());
        strings.push(0);
        at
    };
    for name in needed {
        entries.push((1, add(name)));
    }
    entries.push((15, add(search_path)));
    for symbol in symbols {
        add(symbol);
    }
    let dynamic_len = (entries.len() as u64 + 3) * 16;
    let (dynamic_at, strings_len) = (64 + 2 * 56, strings.len() as u64);
    let strings_at = dynamic_at + dynamic_len;
    entries.extend([(5, strings_at), (10, strings_len), (0, 0)]);

    let machine: u16 = if cfg!(target_arch = "x86_64") {
        62
    } else {
        183
    };
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(18, 0);
    bytes.extend(machine.to_le_bytes());
    bytes.resize(32, 0);
    bytes.extend(64_u64.to_le_bytes());
    bytes.resize(54, 0);
    bytes.extend(56_u16.to_le_bytes());
    bytes.extend(2_u16.to_le_bytes());
    bytes.resize(64, 0);
    for (kind, offset, len) in [
        (1_u32, 0, strings_at + strings_len),
        (2, dynamic_at, dynamic_len),
    ] {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        for value in [offset, offset, offset, len, len, 8] {
            bytes.extend(value.to_le_bytes());
        }
    }
    for (tag, value) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend(strings);
    bytes
}

fn write(path: PathBuf, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// A folder that passes the check.
fn good() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    write(root.join("build-version"), "2.13.0\n");
    write(
        root.join("lib/libc10.so"),
        library(&["libc.so.6"], "$ORIGIN", &[NEW_SYMBOL]),
    );
    let needed = ["libc10.so", "libfake-runtime.so.13", "libstdc++.so.6"];
    write(
        root.join("lib/libtorch_cpu.so"),
        library(&needed, "$ORIGIN/none:$ORIGIN", &[]),
    );
    write(root.join("lib/libfake-runtime.so.13"), "");
    write(root.join("lib/libtorch.so"), "INPUT ( libtorch_cpu.so )\n");
    write(
        root.join("include/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp"),
        "",
    );
    write(
        root.join("include/torch/csrc/api/include/torch/torch.h"),
        "",
    );
    dir
}

/// The error of a folder, which must come quickly and say all it has to.
fn error_of(folder: &Path) -> Error {
    report_of(Settings::at(folder))
}

fn report_of(settings: Settings) -> Error {
    let start = Instant::now();
    let error = Libtorch::with_settings(settings)
        .and_then(Libtorch::check)
        .unwrap_err();
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "took {:?}",
        start.elapsed()
    );
    let report = format!("{error:?}");
    assert!(report.contains("hint: "), "{report}");
    if let Some(found) = error.found() {
        assert!(
            report.contains(&*found.folder.to_string_lossy()),
            "{report}"
        );
        assert!(report.contains("needed 2.13"), "{report}");
        assert!(report.contains("needed C++11"), "{report}");
    }
    error
}

#[test]
fn a_good_folder_passes_and_tells_its_parts() {
    let dir = good();
    let libtorch = Libtorch::at(dir.path()).unwrap().check().unwrap();
    assert_eq!(libtorch.lib_dir, dir.path().join("lib"));
    assert_eq!(libtorch.include_dirs[0], dir.path().join("include"));
    assert_eq!(libtorch.abi, Some(CxxAbi::Cxx11));
    assert_eq!(libtorch.version.unwrap().to_string(), "2.13.0");
    assert_eq!(libtorch.origin, Origin::Folder);
    assert!(!libtorch.cuda);
}

#[test]
fn another_version() {
    let dir = good();
    write(dir.path().join("build-version"), "2.5.1+cpu\n");
    let error = error_of(dir.path());
    assert!(matches!(error, Error::WrongVersion { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("expected `2.13`, found `2.5.1+cpu`"),
        "{error}"
    );
    assert!(
        error.hint().contains("cargo xtask setup"),
        "{}",
        error.hint()
    );
}

#[test]
fn no_version_stated() {
    let dir = good();
    fs::remove_file(dir.path().join("build-version")).unwrap();
    let error = error_of(dir.path());
    assert!(matches!(error, Error::WrongVersion { .. }), "{error:?}");
    assert!(error.to_string().contains("states no version"), "{error}");
}

#[test]
fn the_old_abi() {
    let dir = good();
    write(
        dir.path().join("lib/libc10.so"),
        library(&[], "", &[OLD_SYMBOL]),
    );
    let error = error_of(dir.path());
    assert!(matches!(error, Error::WrongAbi { .. }), "{error:?}");
    assert!(error.to_string().contains("found pre-C++11"), "{error}");
}

#[test]
fn the_old_abi_asked_for() {
    let dir = good();
    let mut settings = Settings::at(dir.path());
    settings.cxx11_abi = Some("0".into());
    let error = report_of(settings);
    assert!(matches!(error, Error::WrongAbi { .. }), "{error:?}");
    assert!(error.to_string().contains("LIBTORCH_CXX11_ABI"), "{error}");
    assert!(
        error.hint().contains("unset `LIBTORCH_CXX11_ABI`"),
        "{}",
        error.hint()
    );
}

#[test]
fn all_missing_parts_at_once() {
    let dir = good();
    fs::remove_file(dir.path().join("lib/libc10.so")).unwrap();
    fs::remove_file(dir.path().join("lib/libtorch.so")).unwrap();
    let error = error_of(dir.path());
    assert!(matches!(error, Error::MissingLibraries { .. }), "{error:?}");
    assert!(
        error.to_string().contains("`libc10.so`, `libtorch.so`"),
        "{error}"
    );
}

#[test]
fn a_missing_library_that_a_part_needs() {
    let dir = good();
    fs::remove_file(dir.path().join("lib/libfake-runtime.so.13")).unwrap();
    let error = error_of(dir.path());
    let wanted = "`libfake-runtime.so.13` (needed by `libtorch_cpu.so`)";
    assert!(error.to_string().contains(wanted), "{error}");

    let elsewhere = tempfile::tempdir().unwrap();
    write(elsewhere.path().join("libfake-runtime.so.13"), "");
    let mut settings = Settings::at(dir.path());
    settings.library_path = vec![elsewhere.path().to_owned()];
    Libtorch::with_settings(settings).unwrap().check().unwrap();
}

#[test]
fn a_folder_of_links_is_taken_as_the_loader_takes_it() {
    let (whole, links) = (good(), good());
    let path = links.path().join("lib/libtorch_cpu.so");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(whole.path().join("lib/libtorch_cpu.so"), path).unwrap();
    Libtorch::at(links.path()).unwrap().check().unwrap();
    fs::remove_file(links.path().join("lib/libfake-runtime.so.13")).unwrap();
    let error = error_of(links.path());
    assert!(matches!(error, Error::MissingLibraries { .. }), "{error:?}");
}

#[test]
fn a_library_cut_off_by_a_broken_copy() {
    let dir = good();
    let path = dir.path().join("lib/libtorch_cpu.so");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
    let error = error_of(dir.path());
    assert!(matches!(error, Error::DamagedLibrary { .. }), "{error:?}");
    assert!(
        error.to_string().contains("ends before its content"),
        "{error}"
    );
}

#[test]
fn libraries_for_another_processor() {
    let dir = good();
    let path = dir.path().join("lib/libtorch_cpu.so");
    let mut bytes = fs::read(&path).unwrap();
    bytes[18] = if cfg!(target_arch = "x86_64") {
        183
    } else {
        62
    };
    fs::write(&path, bytes).unwrap();
    let error = error_of(dir.path());
    assert!(matches!(error, Error::WrongProcessor { .. }), "{error:?}");
}

#[test]
fn missing_headers() {
    let dir = good();
    fs::remove_dir_all(dir.path().join("include/torch/csrc/distributed")).unwrap();
    let error = error_of(dir.path());
    assert!(
        error.to_string().contains("ProcessGroupGloo.hpp"),
        "{error}"
    );
}

#[test]
fn a_folder_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let error = error_of(&dir.path().join("nowhere"));
    assert!(matches!(error, Error::NoFolder { .. }), "{error:?}");
    assert!(
        error.hint().contains("unset `LIBTORCH`"),
        "{}",
        error.hint()
    );
}

#[test]
fn a_python_wheel_packed_or_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let wheel = dir.path().join("torch-2.13.0-cp312-cp312-linux_x86_64.whl");
    write(wheel.clone(), "PK");
    let error = error_of(&wheel);
    assert!(
        matches!(error, Error::PythonWheel { package: None, .. }),
        "{error:?}"
    );

    let packages = dir.path().join("site-packages");
    write(
        packages.join("torch/version.py"),
        "__version__ = '2.13.0+cu130'\n",
    );
    write(
        packages.join("torch/lib/libc10.so"),
        library(&[], "", &[NEW_SYMBOL]),
    );
    let error = error_of(&packages);
    assert!(matches!(error, Error::PythonWheel { .. }), "{error:?}");
    assert!(
        error.hint().contains("site-packages/torch`"),
        "{}",
        error.hint()
    );
    assert!(format!("{error:?}").contains("2.13.0+cu130"), "{error:?}");
}

#[test]
fn a_whole_python_package_is_a_libtorch() {
    let dir = good();
    fs::remove_file(dir.path().join("build-version")).unwrap();
    write(
        dir.path().join("version.py"),
        "__version__ = '2.13.0+cu130'\n",
    );
    write(
        dir.path().join("lib/libtorch_cuda.so"),
        library(&["libfake-cudnn.so.9"], "", &[]),
    );
    let error = error_of(dir.path());
    assert!(
        error.to_string().contains("(needed by `libtorch_cuda.so`)"),
        "{error}"
    );

    write(
        dir.path().join("lib/libtorch_cuda.so"),
        library(&["libc10.so"], "$ORIGIN", &[]),
    );
    assert!(Libtorch::at(dir.path()).unwrap().check().unwrap().cuda);
}

#[test]
fn parts_may_lie_apart() {
    let (headers, libraries) = (good(), good());
    fs::remove_dir_all(headers.path().join("lib")).unwrap();
    fs::remove_dir_all(libraries.path().join("include")).unwrap();
    let mut settings = Settings::at(libraries.path());
    settings.include_parent = Some(headers.path().to_owned());
    Libtorch::with_settings(settings).unwrap().check().unwrap();
}

#[test]
fn nothing_set_finds_the_system_or_says_so() {
    let dir = good();
    let mut settings = Settings::at("");
    settings.folder = None;
    settings.system_prefix = dir.path().to_owned();
    let libtorch = Libtorch::with_settings(settings.clone())
        .unwrap()
        .check()
        .unwrap();
    assert_eq!(libtorch.origin, Origin::System(dir.path().to_owned()));

    settings.system_prefix = dir.path().join("nowhere");
    let error = report_of(settings);
    assert!(matches!(error, Error::NotFound), "{error:?}");
}

#[test]
fn python_without_torch_and_no_python() {
    let mut settings = Settings::at("");
    settings.use_python = true;
    settings.python = "/nonexistent/python3".into();
    let error = report_of(settings.clone());
    assert!(matches!(error, Error::PythonFailed { .. }), "{error:?}");

    settings.python = "true".into();
    let error = report_of(settings);
    assert!(matches!(error, Error::NoPythonTorch { .. }), "{error:?}");
}
