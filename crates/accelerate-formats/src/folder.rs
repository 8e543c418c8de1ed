//! What lies in a folder.

use std::path::Path;

use crate::error::{Error, Result};

/// The names of everything in `folder`, sorted.
///
/// # Errors
/// [`Error::Open`] if the folder cannot be read.
pub fn names_in(folder: &Path) -> Result<Vec<String>> {
    let reading = |source| Error::Open {
        path: folder.to_owned(),
        source,
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(reading)? {
        names.push(
            entry
                .map_err(reading)?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    names.sort_unstable();
    Ok(names)
}
