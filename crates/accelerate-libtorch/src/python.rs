//! The libtorch inside a Python environment.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::error::Error;

/// Prints the folder of the package `torch` without importing it, which would take seconds.
const FIND: &str = "
import importlib.util, os
spec = importlib.util.find_spec('torch')
places = list(spec.submodule_search_locations or []) if spec else []
print(os.path.abspath(places[0]) if places else '')
";

/// Asks an interpreter for the folder of its package `torch`.
///
/// # Errors
/// [`Error::PythonFailed`] if the interpreter does not run, [`Error::NoPythonTorch`] if it has no
/// such package.
pub(super) fn torch_folder(python: &Path) -> Result<PathBuf, Error> {
    let output = Command::new(python)
        .args(["-c", FIND])
        .output()
        .map_err(|source| Error::PythonFailed {
            python: python.to_owned(),
            source,
        })?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || folder.is_empty() {
        return Err(Error::NoPythonTorch {
            python: python.to_owned(),
        });
    }
    Ok(PathBuf::from(folder))
}
