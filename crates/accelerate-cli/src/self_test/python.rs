//! Where a Python interpreter has its packages, found without starting it.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

use accelerate_plan::env::Environment;

use super::SelfTestError;
use crate::launch::{self, find_on_path, is_executable};

/// The script that the Python package's own `accelerate test` runs, below a folder of packages.
const SCRIPT: &str = "accelerate/test_utils/scripts/test_script.py";

/// The interpreter that was asked for, or the one that `accelerate launch` would use.
pub(super) fn interpreter(
    chosen: Option<&Path>,
    env: &Environment,
) -> Result<PathBuf, SelfTestError> {
    let missing = || SelfTestError::InterpreterMissing {
        asked: chosen.map(Path::to_owned),
    };
    match chosen {
        Some(path) if path.components().count() > 1 => is_executable(path)
            .then(|| path.to_owned())
            .ok_or_else(missing),
        Some(name) => find_on_path(env, &[name]).ok_or_else(missing),
        None => launch::interpreter(env).ok().flatten().ok_or_else(missing),
    }
}

/// The test script of the package that this interpreter would import.
pub(super) fn test_script(interpreter: &Path) -> Result<PathBuf, SelfTestError> {
    let folders = package_folders(interpreter);
    let scripts = folders.iter().map(|folder| folder.join(SCRIPT));
    scripts
        .into_iter()
        .find(|script| script.is_file())
        .ok_or_else(|| SelfTestError::ScriptMissing {
            interpreter: interpreter.to_owned(),
            folders,
        })
}

/// The folders with the packages of an interpreter, as far as its place tells.
///
/// A virtual environment has its own, and the system's too where it says so. What `.pth` files and
/// editable installs add is not followed.
fn package_folders(interpreter: &Path) -> Vec<PathBuf> {
    let own = prefix(interpreter);
    let settings = own
        .map(|prefix| prefix.join("pyvenv.cfg"))
        .and_then(|path| fs::read_to_string(path).ok());
    let mut folders: Vec<PathBuf> = own.map(below_prefix).unwrap_or_default();
    let is_closed = settings.as_deref().is_some_and(|text| !opens_system(text));
    if !is_closed && let Ok(real) = interpreter.canonicalize() {
        folders.extend(prefix(&real).map(below_prefix).unwrap_or_default());
        folders.extend(below_prefix(Path::new("/usr/local")));
    }
    let mut distinct = Vec::new();
    for folder in folders {
        if !distinct.contains(&folder) {
            distinct.push(folder);
        }
    }
    distinct
}

/// `/usr` for `/usr/bin/python3`.
fn prefix(interpreter: &Path) -> Option<&Path> {
    interpreter.parent()?.parent()
}

/// Whether `pyvenv.cfg` lets the packages of the system in.
fn opens_system(settings: &str) -> bool {
    settings.lines().any(|line| {
        line.split_once('=').is_some_and(|(key, value)| {
            key.trim() == "include-system-site-packages"
                && value.trim().eq_ignore_ascii_case("true")
        })
    })
}

/// `lib/python3.12/site-packages` and its like.
fn below_prefix(prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for lib in ["lib", "lib64"] {
        let entries = fs::read_dir(prefix.join(lib))
            .into_iter()
            .flatten()
            .flatten();
        let mut versions: Vec<PathBuf> = entries
            .filter(|entry| is_python(&entry.file_name()))
            .map(|entry| entry.path())
            .collect();
        versions.sort_unstable();
        for version in versions {
            found.extend(["site-packages", "dist-packages"].map(|name| version.join(name)));
        }
    }
    found.retain(|folder| folder.is_dir());
    found
}

fn is_python(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| name.starts_with("python3"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(with: &[&str], settings: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for path in with {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        fs::write(folder.path().join("pyvenv.cfg"), settings).unwrap();
        folder
    }

    #[test]
    fn the_script_of_an_environment_is_found() {
        let script = format!("lib/python3.12/site-packages/{SCRIPT}");
        let folder = environment(
            &["bin/python", &script],
            "include-system-site-packages = false\n",
        );
        let found = test_script(&folder.path().join("bin/python")).unwrap();
        assert_eq!(found, folder.path().join(script));
    }

    #[test]
    fn an_environment_without_the_package_is_named_with_its_folders() {
        let folder = environment(
            &["bin/python", "lib/python3.12/site-packages/other.py"],
            "include-system-site-packages = false\n",
        );
        let error = test_script(&folder.path().join("bin/python")).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("bin/python"), "{text}");
        assert!(text.contains("lib/python3.12/site-packages"), "{text}");
    }

    #[test]
    fn a_closed_environment_does_not_look_at_the_system() {
        assert!(opens_system(
            "home = /usr\ninclude-system-site-packages = TRUE\n"
        ));
        assert!(!opens_system("include-system-site-packages = false\n"));
        assert!(!opens_system("home = /usr/bin\n"));
    }
}
