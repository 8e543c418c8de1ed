//! The original in Python: where its scripts are, and what it says about flags, files, variables.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;

use crate::ours::{Done, Home};

/// A file of the parity suite.
pub(crate) fn parity_file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity");
    folder.join(name).canonicalize().unwrap()
}

/// Held while Python runs: loading PyTorch several times at once helps nobody.
pub(crate) fn one_at_a_time() -> MutexGuard<'static, ()> {
    static PYTHON: Mutex<()> = Mutex::new(());
    PYTHON.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks `original_launch.py`.
pub(crate) fn ask(python: &Path, what: &str, input: &Value) -> Value {
    let _turn = one_at_a_time();
    let home = Home::new();
    let mut child = home
        .alone(python)
        .arg(parity_file("original_launch.py"))
        .arg(what)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.to_string().as_bytes()).unwrap();
    drop(stdin);
    let done = Done::of(&child.wait_with_output().unwrap()).assert_code(0);
    serde_json::from_str(&done.stdout).unwrap()
}

/// One of the scripts by which the original tests an installation.
pub(crate) fn script(python: &Path, name: &str) -> PathBuf {
    let _turn = one_at_a_time();
    let home = Home::new();
    // Found without importing it, which would load PyTorch.
    let code = "import importlib.util as u; print(u.find_spec('accelerate').origin)";
    let output = home.alone(python).args(["-c", code]).output().unwrap();
    let done = Done::of(&output).assert_code(0);
    let package = Path::new(done.stdout.trim()).parent().unwrap();
    let path = package.join("test_utils/scripts").join(name);
    assert!(path.is_file(), "{}", path.display());
    path
}
