//! Finding runs in a folder.

use std::fs;
use std::path::{Path, PathBuf};

use super::RUN_FILE;
use crate::error::{Result, io_error};

/// How deep runs may lie: a project's folder and the run's own, and some to spare.
const DEPTH: usize = 4;

/// The folders of all runs in `root`, which may be one itself, the newest first.
///
/// Folders below it that cannot be looked into are passed over, and so are links.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) if `root` cannot be looked into.
pub fn find_runs(root: &Path) -> Result<Vec<PathBuf>> {
    if root.join(RUN_FILE).is_file() {
        return Ok(vec![root.to_owned()]);
    }
    fs::read_dir(root).map_err(|source| io_error("look into", root, source))?;
    let mut found = Vec::new();
    collect(root, DEPTH, &mut found);
    // Names begin with the time: the newest is the last by name.
    found.sort_by(|one, other| other.file_name().cmp(&one.file_name()));
    Ok(found)
}

fn collect(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.filter_map(std::result::Result::ok) {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_folder {
            continue;
        }
        if path.join(RUN_FILE).is_file() {
            found.push(path);
        } else if depth > 1 {
            collect(&path, depth - 1, found);
        }
    }
}
