//! The manifest of a folder that `save_state` wrote.
//!
//! `crates/accelerate/src/checkpoint/manifest.rs` defines its layout, the order of the fields
//! included. The library links libtorch, so this reads the JSON by itself. Keys that are not known are
//! left alone.

use std::{
    fs, io,
    path::{Component, Path},
};

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
    /// The hash of all of the above.
    #[serde(default, skip_serializing)]
    digest: Option<String>,
}

/// A manifest as its own hash is made of: all fields, and none for the hash itself.
#[derive(Serialize)]
struct Unsealed<'m> {
    version: u32,
    program: &'m str,
    library: &'m str,
    num_processes: usize,
    iteration: u64,
    saved_at: u64,
    files: &'m [ManifestFile],
    digest: Option<String>,
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
    let own = manifest
        .own_digest()
        .map_err(|error| format!("cannot understand `{FILE}`: {error}"))?;
    if manifest.digest.as_ref().is_some_and(|said| *said != own) {
        return Err(format!("the content of `{FILE}` is not what was saved"));
    }
    Ok(Some(manifest))
}

impl Manifest {
    /// The hash of everything but itself.
    fn own_digest(&self) -> serde_json::Result<String> {
        let text = serde_json::to_vec(&Unsealed {
            version: self.version,
            program: &self.program,
            library: &self.library,
            num_processes: self.num_processes,
            iteration: self.iteration,
            saved_at: self.saved_at,
            files: &self.files,
            digest: None,
        })?;
        Ok(blake3::hash(&text).to_hex().to_string())
    }
}

impl ManifestFile {
    /// What is wrong with the file, if anything. With `verify`, its content counts too.
    pub(super) fn problem(&self, folder: &Path, verify: bool) -> Option<String> {
        let mut parts = Path::new(&self.name).components();
        if self.name.is_empty() || !parts.all(|part| matches!(part, Component::Normal(_))) {
            return Some(format!("`{}` is no path within the folder", self.name));
        }
        let path = folder.join(&self.name);
        let found = match fs::metadata(&path) {
            Err(error) => return Some(format!("`{}` cannot be read: {error}", self.name)),
            Ok(found) if !found.is_file() => {
                return Some(format!("`{}` is no regular file", self.name));
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_outside_and_what_is_no_file_are_never_read() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("state");
        fs::create_dir_all(folder.join("inner")).unwrap();
        fs::write(above.path().join("outside"), b"").unwrap();
        fs::write(folder.join("inner/file"), b"").unwrap();
        let absolute = above.path().join("outside").display().to_string();
        let problem = |name: &str| {
            let file = ManifestFile {
                name: name.to_owned(),
                size: 0,
                blake3: blake3::hash(b"").to_hex().to_string(),
            };
            file.problem(&folder, true)
        };
        assert_eq!(problem("inner/file"), None);
        for name in ["", "../outside", "inner/../../outside", absolute.as_str()] {
            let said = problem(name).unwrap();
            assert!(said.contains("no path within"), "{said}");
        }
        assert!(problem("inner").unwrap().contains("no regular file"));
    }

    #[test]
    fn a_manifest_that_was_changed_is_told() {
        let folder = tempfile::tempdir().unwrap();
        // As the library writes it, without the hash of itself.
        let plain = r#"{"version":1,"program":"train","library":"0.1.0","num_processes":2,"iteration":4,"saved_at":1700000000,"files":[{"name":"a","size":0,"blake3":"00"}],"digest":null}"#;
        let digest = blake3::hash(plain.as_bytes()).to_hex().to_string();
        let sealed = plain.replace("null", &format!("\"{digest}\""));
        let read = |text: &str| {
            fs::write(folder.path().join(FILE), text).unwrap();
            read(folder.path())
        };
        assert_eq!(read(&sealed).unwrap().unwrap().iteration, 4);
        assert!(read(plain).is_ok(), "older manifests have none");
        let changed = sealed.replace("\"iteration\":4", "\"iteration\":7");
        let fault = read(&changed).unwrap_err();
        assert!(fault.contains("not what was saved"), "{fault}");
    }
}
