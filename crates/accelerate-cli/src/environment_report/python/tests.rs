use std::{fs, os::unix::fs::PermissionsExt as _, os::unix::fs::symlink};

use tempfile::TempDir;

use super::*;

/// An installation of Python 3.11.7 without headers, and folders beside it.
struct Installed(TempDir);

impl Installed {
    fn new() -> Self {
        let installed = Self(tempfile::tempdir().unwrap());
        installed.write("base/bin/python3.11", "");
        let path = installed.path("base/bin/python3.11");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        installed.link("python3.11", "base/bin/python");
        installed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, target: &str, name: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// What is found with this search path and these variables.
    fn find(&self, folder: &str, pairs: &[(&'static str, String)]) -> Option<Python> {
        let path = self.path(folder).display().to_string();
        let pairs = pairs.iter().cloned().chain([("PATH", path)]);
        Python::find(&Environment::from_pairs(pairs))
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

fn version(python: Option<Python>) -> Option<String> {
    python.unwrap().version
}

#[test]
fn no_interpreter_is_none() {
    let installed = Installed::new();
    assert_eq!(installed.find("nowhere", &[]), None);
    let missing = [("PYTHON_EXEC", "/nowhere/python".to_owned())];
    assert_eq!(installed.find("base/bin", &missing), None);
}

#[test]
fn the_version_comes_from_the_best_source_there_is() {
    let installed = Installed::new();
    assert_eq!(
        version(installed.find("base/bin", &[])).as_deref(),
        Some("3.11")
    );
    installed.write(
        "base/include/python3.11/patchlevel.h",
        "#define PY_MAJOR_VERSION 3\n#define PY_VERSION_HEX 1\n#define PY_VERSION\t\"3.11.9\"\n",
    );
    assert_eq!(
        version(installed.find("base/bin", &[])).as_deref(),
        Some("3.11.9")
    );
}

#[test]
fn a_folder_may_be_named_after_the_version() {
    let installed = Installed::new();
    installed.write("cpython-3.12.4-linux-x86_64-gnu/bin/python3.12", "");
    let path = installed.path("cpython-3.12.4-linux-x86_64-gnu/bin/python3.12");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    installed.link(
        "../cpython-3.12.4-linux-x86_64-gnu/bin/python3.12",
        "links/python3",
    );
    assert_eq!(
        version(installed.find("links", &[])).as_deref(),
        Some("3.12.4")
    );
}

#[test]
fn a_virtual_environment_has_its_own_packages() {
    let installed = Installed::new();
    installed.link("../../base/bin/python3.11", "venv/bin/python");
    installed.write(
        "venv/pyvenv.cfg",
        "home = /base/bin\ninclude-system-site-packages = false\nversion = 3.11.7\n",
    );
    let packages = "lib/python3.11/site-packages";
    installed.write(
        &format!("venv/{packages}/numpy-2.4.6.dist-info/METADATA"),
        "Metadata-Version: 2.4\nName: numpy\nVersion: 2.4.6\n\nVersion: in the text\n",
    );
    installed.write(
        &format!("base/{packages}/Accelerate-1.15.0.dist-info/METADATA"),
        "Version: 1.15.0\n",
    );
    let active = [("VIRTUAL_ENV", installed.text("venv"))];
    let python = installed.find("base/bin", &active).unwrap();
    assert_eq!(python.version.as_deref(), Some("3.11.7"));
    assert_eq!(python.executable, installed.path("venv/bin/python"));
    assert_eq!(python.package("numpy").unwrap().version, "2.4.6");
    assert_eq!(python.package("accelerate"), None, "outside");

    installed.write(
        "venv/pyvenv.cfg",
        "include-system-site-packages = true\nversion_info = 3.11.7.final.0\n",
    );
    let python = installed.find("base/bin", &active).unwrap();
    assert_eq!(python.version.as_deref(), Some("3.11.7"));
    assert_eq!(python.package("accelerate").unwrap().version, "1.15.0");
}

#[test]
fn packages_are_searched_where_python_searches_them() {
    let installed = Installed::new();
    let packages = "lib/python3.11/site-packages";
    let record = |version| format!("Version: {version}\n");
    installed.write(
        &format!("base/{packages}/numpy-1.0.egg-info"),
        &record("1.0"),
    );
    let find = |pairs: &[_]| {
        let python = installed.find("base/bin", pairs).unwrap();
        python.package("numpy").unwrap().version
    };
    let home = ("HOME", installed.text("home"));
    assert_eq!(find(std::slice::from_ref(&home)), "1.0");
    installed.write(
        &format!("home/.local/{packages}/numpy.egg-info/PKG-INFO"),
        &record("2.0"),
    );
    assert_eq!(find(std::slice::from_ref(&home)), "2.0");
    installed.write("first/numpy-3.0.dist-info/METADATA", &record("3.0"));
    let path = ("PYTHONPATH", installed.text("first"));
    assert_eq!(find(&[home, path]), "3.0");
}

#[test]
fn pytorch_states_its_build() {
    let installed = Installed::new();
    installed.write(
        "base/lib/python3.11/site-packages/torch/version.py",
        "from typing import Optional\n\n__all__ = ['__version__', 'cuda']\n\
         __version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\n\
         hip: Optional[str] = None\nxpu: Optional[str] = None\n",
    );
    let torch = installed.find("base/bin", &[]).unwrap().torch().unwrap();
    let expected = Torch {
        version: "2.13.0+cu130".to_owned(),
        cuda: true,
        hip: false,
        xpu: false,
    };
    assert_eq!(torch, expected);
}

#[test]
fn stand_ins_of_pyenv_are_seen_through() {
    let installed = Installed::new();
    for version in ["3.9.18", "3.11.7", "3.11.10"] {
        let short = version.rsplit_once('.').unwrap().0;
        let file = format!("pyenv/versions/{version}/bin/python{short}");
        installed.write(&file, "");
        installed.link(
            &format!("python{short}"),
            &format!("pyenv/versions/{version}/bin/python"),
        );
    }
    installed.write("pyenv/shims/python", "#!/bin/sh\n");
    let path = installed.path("pyenv/shims/python");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    installed.write("pyenv/version", "3.9.18\n");
    let found = |chosen: Option<&str>| {
        let chosen = chosen.map(|chosen| ("PYENV_VERSION", chosen.to_owned()));
        let pairs: Vec<_> = chosen.into_iter().collect();
        version(installed.find("pyenv/shims", &pairs))
    };
    assert_eq!(found(None).as_deref(), Some("3.9.18"));
    assert_eq!(found(Some("3.11.7")).as_deref(), Some("3.11.7"));
    assert_eq!(found(Some("system:3.11")).as_deref(), Some("3.11.10"));
}
