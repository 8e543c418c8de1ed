//! The part of a checkpoint's manifest that needs the program: files that its hooks wrote.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use accelerate_formats::manifest::{CheckpointFault, Manifest, ManifestFile};

use super::folder::{flush, io};
use crate::Result;

/// Describes to `manifest` the files of `folder`, at any depth, that are not described yet: those that hooks
/// of the program wrote. They and all folders below `folder` are flushed to disk.
///
/// # Errors
/// [`Error::Io`] if one cannot be read or flushed.
pub(super) fn add_unlisted(manifest: &mut Manifest, folder: &Path) -> Result<()> {
    let listed: HashSet<String> = manifest
        .files
        .iter()
        .map(|file| file.name.clone())
        .collect();
    for name in files_below(folder, "")? {
        if !listed.contains(&name) {
            let described = ManifestFile::of(folder, &name);
            manifest
                .files
                .push(described.map_err(|source| io("read", &folder.join(&name), source))?);
            flush(&folder.join(&name))?;
        }
    }
    manifest
        .files
        .sort_by(|one, other| one.name.cmp(&other.name));
    let mut folders = BTreeSet::new();
    for file in &manifest.files {
        let above = Path::new(&file.name).ancestors().skip(1);
        folders.extend(above.filter(|part| !part.as_os_str().is_empty()));
    }
    // Inner ones first.
    let mut folders = folders.into_iter().rev();
    folders.try_for_each(|part| flush(&folder.join(part)))
}

/// The paths of all files below `part` of `folder`.
fn files_below(folder: &Path, part: &str) -> Result<Vec<String>> {
    let path = folder.join(part);
    let failing = |source| io("look into", &path, source);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(failing)? {
        let entry = entry.map_err(failing)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let name = match part {
            "" => name.into_owned(),
            part => format!("{part}/{name}"),
        };
        if entry.file_type().map_err(failing)?.is_dir() {
            found.extend(files_below(folder, &name)?);
        } else {
            found.push(name);
        }
    }
    Ok(found)
}

/// A folder that was passed over while looking for a checkpoint, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedCheckpoint {
    /// The folder.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: CheckpointFault,
}

impl fmt::Display for SkippedCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.path.display(), self.fault)
    }
}
