//! The manifest of a folder that `save_state` wrote.
//!
//! The library that writes it links libtorch, so this reads its JSON by itself. Keys that are not
//! known are left alone.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};

/// The name of the manifest in a folder.
pub(super) const FILE: &str = "accelerate_manifest.json";
/// The version that is known.
const VERSION: u32 = 1;

/// What a folder should hold.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    #[serde(skip_serializing)]
    version: u32,
    pub(super) program: String,
    pub(super) library: String,
    pub(super) num_processes: usize,
    pub(super) iteration: u64,
    /// In seconds since 1970.
    pub(super) saved_at: u64,
    pub(super) files: Vec<ManifestFile>,
}

/// A file that should be there.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ManifestFile {
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) blake3: String,
}

/// Reads the manifest of a folder, if it has one.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(folder: &Path) -> Result<Option<Manifest>, String> {
    let bytes = match fs::read(folder.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| format!("cannot read `{FILE}`: {error}"))?,
    };
    let manifest: Manifest = serde_json::from_slice(&bytes)
        .map_err(|error| format!("cannot understand `{FILE}`: {error}"))?;
    if manifest.version != VERSION {
        return Err(format!(
            "`{FILE}` has version {}, and {VERSION} is known",
            manifest.version
        ));
    }
    Ok(Some(manifest))
}

impl ManifestFile {
    /// What is wrong with the file, if anything. With `verify`, its content counts too.
    pub(super) fn problem(&self, folder: &Path, verify: bool) -> Option<String> {
        let path = folder.join(&self.name);
        let found = match fs::metadata(&path) {
            Err(error) => return Some(format!("`{}` cannot be read: {error}", self.name)),
            Ok(found) => found.len(),
        };
        if found != self.size {
            return Some(format!(
                "`{}` has {found} bytes instead of {}",
                self.name, self.size
            ));
        }
        if !verify {
            return None;
        }
        match hash(&path) {
            Ok(hash) if hash == self.blake3 => None,
            Ok(_) => Some(format!(
                "the content of `{}` is not what was saved",
                self.name
            )),
            Err(error) => Some(format!("`{}` cannot be read: {error}", self.name)),
        }
    }
}

fn hash(path: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(fs::File::open(path)?)?;
    Ok(hasher.finalize().to_hex().to_string())
}
