//! What the folder of a saved training holds, so that a whole one can be told from a broken one.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The name of the manifest in a checkpoint folder.
pub const MANIFEST_FILE: &str = "accelerate_manifest.json";
/// The version of the manifest that this library writes.
const VERSION: u32 = 1;
/// The longest manifest that is read: one of some hundred thousand files.
const MAX_BYTES: u64 = 64 << 20;

/// What a checkpoint folder holds: every file with its size and hash, and what wrote it.
///
/// It is the last file that is written, so a folder that has one was complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this description.
    pub version: u32,
    /// The program that saved, by the name of its file.
    pub program: String,
    /// The version of this library.
    pub library: String,
    /// How many ranks saved.
    pub num_processes: usize,
    /// How many checkpoints the job had saved before.
    pub iteration: u64,
    /// When it was saved, in seconds since 1970.
    pub saved_at: u64,
    /// Every other file of the folder, in the order of their names.
    pub files: Vec<ManifestFile>,
    /// The BLAKE3 hash of all of the above, in hexadecimal digits.
    #[serde(default)]
    pub digest: Option<String>,
}

/// One file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Its path in the folder.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// The BLAKE3 hash of its content, in hexadecimal digits.
    pub blake3: String,
}

/// How closely a checkpoint is looked at before it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// Every file has its size.
    Sizes,
    /// Every file has its size and its content: reads everything once more.
    #[default]
    Hashes,
}

/// Why a folder is no whole checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointFault {
    /// There is no manifest: saving it was not finished, or another program wrote it.
    #[error("it has no `{MANIFEST_FILE}`")]
    NoManifest,
    /// The manifest says nothing that can be understood.
    #[error("its `{MANIFEST_FILE}` cannot be read: {0}")]
    Manifest(String),
    /// A newer library wrote it.
    #[error("its `{MANIFEST_FILE}` has version {found}, and this library knows {VERSION}")]
    Version {
        /// The version found.
        found: u32,
    },
    /// A file is named that is not in the folder.
    #[error("`{name}` is no path within the folder")]
    Outside {
        /// The name.
        name: String,
    },
    /// A file is gone or cannot be read.
    #[error("`{name}` cannot be read: {problem}")]
    File {
        /// The file.
        name: String,
        /// What the system says.
        problem: String,
    },
    /// A file has another size.
    #[error("`{name}` has {found} bytes instead of {expected}")]
    Size {
        /// The file.
        name: String,
        /// The size in the manifest.
        expected: u64,
        /// The size found.
        found: u64,
    },
    /// A file has another content.
    #[error("the content of `{name}` is not what was saved")]
    Content {
        /// The file.
        name: String,
    },
}

impl ManifestFile {
    /// Reads the file `name` of `folder` and describes it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(folder: &Path, name: &str) -> io::Result<Self> {
        let path = folder.join(name);
        Ok(Self {
            name: name.to_owned(),
            size: std::fs::metadata(&path)?.len(),
            blake3: hash(&path)?,
        })
    }

    /// Compares the file in `folder` with this description. Nothing outside of the folder and
    /// nothing but regular files is read, whatever a manifest names.
    ///
    /// # Errors
    /// The first [`CheckpointFault`].
    pub fn check(&self, folder: &Path, verify: Verify) -> Result<(), CheckpointFault> {
        let mut parts = Path::new(&self.name).components();
        if self.name.is_empty() || !parts.all(|part| matches!(part, Component::Normal(_))) {
            return Err(CheckpointFault::Outside {
                name: self.name.clone(),
            });
        }
        let path = folder.join(&self.name);
        let failing = |error: io::Error| CheckpointFault::File {
            name: self.name.clone(),
            problem: error.to_string(),
        };
        let found = std::fs::metadata(&path).map_err(failing)?;
        if !found.is_file() {
            return Err(failing(io::Error::other("it is no regular file")));
        }
        let found = found.len();
        if found != self.size {
            return Err(CheckpointFault::Size {
                name: self.name.clone(),
                expected: self.size,
                found,
            });
        }
        if verify == Verify::Hashes && hash(&path).map_err(failing)? != self.blake3 {
            return Err(CheckpointFault::Content {
                name: self.name.clone(),
            });
        }
        Ok(())
    }
}

/// The bytes of a manifest, whose length nobody vouches for.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if file.metadata()?.len() > MAX_BYTES {
        let problem = format!("it has more than {MAX_BYTES} bytes");
        return Err(io::Error::other(problem));
    }
    let mut text = Vec::new();
    // It may grow while it is read.
    file.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

fn hash(path: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_mmap_rayon(path)?;
    Ok(hasher.finalize().to_hex().to_string())
}

impl Manifest {
    /// A manifest of these files, saved now by this program.
    #[must_use]
    pub fn new(num_processes: usize, iteration: u64, mut files: Vec<ManifestFile>) -> Self {
        files.sort_by(|one, other| one.name.cmp(&other.name));
        let program = std::env::current_exe().ok();
        let name = program.as_deref().and_then(Path::file_name);
        Self {
            version: VERSION,
            program: name.map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            library: env!("CARGO_PKG_VERSION").to_owned(),
            num_processes,
            iteration,
            saved_at: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            files,
            digest: None,
        }
    }

    /// The hash of everything but itself.
    fn own_digest(&self) -> serde_json::Result<String> {
        let plain = Self {
            digest: None,
            ..self.clone()
        };
        let text = serde_json::to_vec(&plain)?;
        Ok(blake3::hash(&text).to_hex().to_string())
    }

    /// Reads the manifest of a checkpoint folder and compares it with what is there.
    ///
    /// # Errors
    /// The first [`CheckpointFault`].
    pub fn verify(folder: impl AsRef<Path>, verify: Verify) -> Result<Self, CheckpointFault> {
        let folder = folder.as_ref();
        let manifest = Self::read(folder)?;
        manifest
            .files
            .iter()
            .try_for_each(|file| file.check(folder, verify))?;
        Ok(manifest)
    }

    /// Reads the manifest of a checkpoint folder.
    ///
    /// # Errors
    /// [`CheckpointFault::NoManifest`], [`CheckpointFault::Manifest`] or
    /// [`CheckpointFault::Version`].
    pub fn read(folder: impl AsRef<Path>) -> Result<Self, CheckpointFault> {
        let text = match read_bounded(&folder.as_ref().join(MANIFEST_FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(CheckpointFault::NoManifest);
            }
            Err(error) => return Err(CheckpointFault::Manifest(error.to_string())),
        };
        let manifest: Self = serde_json::from_slice(&text)
            .map_err(|error| CheckpointFault::Manifest(error.to_string()))?;
        if manifest.version != VERSION {
            let found = manifest.version;
            return Err(CheckpointFault::Version { found });
        }
        let own = manifest
            .own_digest()
            .map_err(|error| CheckpointFault::Manifest(error.to_string()))?;
        if manifest.digest.as_ref().is_some_and(|said| *said != own) {
            let problem = "its content is not what was saved".to_owned();
            return Err(CheckpointFault::Manifest(problem));
        }
        Ok(manifest)
    }

    /// Writes the manifest into `folder`, down to the disk, with its own hash.
    ///
    /// # Errors
    /// If there is one already, or the system fails.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let sealed = Self {
            digest: Some(self.own_digest()?),
            ..self.clone()
        };
        let mut file = File::create_new(folder.join(MANIFEST_FILE))?;
        serde_json::to_writer_pretty(&mut file, &sealed)?;
        file.write_all(b"\n")?;
        file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.bin"), b"some state").unwrap();
        std::fs::write(folder.path().join("b.bin"), b"").unwrap();
        let files = ["b.bin", "a.bin"].map(|name| ManifestFile::of(folder.path(), name).unwrap());
        Manifest::new(2, 3, files.to_vec())
            .write(folder.path())
            .unwrap();
        folder
    }

    #[test]
    fn a_whole_checkpoint_is_told_from_a_broken_one() {
        let folder = checkpoint();
        let manifest = Manifest::verify(folder.path(), Verify::Hashes).unwrap();
        assert_eq!(
            (
                manifest.num_processes,
                manifest.iteration,
                manifest.files[0].name.as_str()
            ),
            (2, 3, "a.bin")
        );

        std::fs::write(folder.path().join("a.bin"), b"some stale").unwrap();
        assert!(Manifest::verify(folder.path(), Verify::Sizes).is_ok());
        let fault = Manifest::verify(folder.path(), Verify::Hashes).unwrap_err();
        assert_eq!(
            fault,
            CheckpointFault::Content {
                name: "a.bin".into()
            }
        );

        std::fs::write(folder.path().join("a.bin"), b"some").unwrap();
        let fault = Manifest::verify(folder.path(), Verify::Sizes).unwrap_err();
        assert_eq!(fault.to_string(), "`a.bin` has 4 bytes instead of 10");

        std::fs::remove_file(folder.path().join("a.bin")).unwrap();
        let fault = Manifest::verify(folder.path(), Verify::Sizes).unwrap_err();
        assert!(matches!(fault, CheckpointFault::File { name, .. } if name == "a.bin"));
    }

    #[test]
    fn a_manifest_that_says_nothing_is_a_fault() {
        let folder = tempfile::tempdir().unwrap();
        let fault = || Manifest::read(folder.path()).unwrap_err();
        assert_eq!(fault(), CheckpointFault::NoManifest);
        std::fs::write(folder.path().join(MANIFEST_FILE), "{").unwrap();
        assert!(matches!(fault(), CheckpointFault::Manifest(_)));
        let whole = checkpoint();
        let text = std::fs::read_to_string(whole.path().join(MANIFEST_FILE)).unwrap();
        let newer = text.replace("\"version\": 1", "\"version\": 2");
        std::fs::write(folder.path().join(MANIFEST_FILE), newer).unwrap();
        assert_eq!(fault(), CheckpointFault::Version { found: 2 });
        let changed = text.replace("\"iteration\": 3", "\"iteration\": 7");
        std::fs::write(folder.path().join(MANIFEST_FILE), changed).unwrap();
        assert!(fault().to_string().contains("not what was saved"));
    }

    #[test]
    fn files_outside_and_what_is_no_file_are_never_read() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("state");
        std::fs::create_dir_all(folder.join("inner")).unwrap();
        std::fs::write(folder.join("inner/file"), b"").unwrap();
        std::fs::write(above.path().join("outside"), b"").unwrap();
        let absolute = above.path().join("outside").display().to_string();
        let check = |name: &str| {
            let described = ManifestFile::of(&folder, "inner/file").unwrap();
            let file = ManifestFile {
                name: name.to_owned(),
                ..described
            };
            file.check(&folder, Verify::Hashes)
        };
        assert_eq!(check("inner/file"), Ok(()));
        for name in ["", "../outside", "inner/../../outside", absolute.as_str()] {
            let fault = check(name).unwrap_err();
            assert!(matches!(fault, CheckpointFault::Outside { .. }), "{fault}");
        }
        let fault = check("inner").unwrap_err().to_string();
        assert!(fault.contains("no regular file"), "{fault}");
    }
}
