//! Files of a checkpoint that are hashed while they are written.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use accelerate_formats::AtomicFile;
use accelerate_formats::manifest::ManifestFile;

use crate::Result;

/// What was written so far.
#[derive(Debug)]
pub(super) struct Digest(Arc<Mutex<blake3::Hasher>>);

/// Begins the file `name` of `folder`.
///
/// # Errors
/// [`Error::Formats`](crate::Error::Formats) if it cannot be begun.
pub(super) fn begin(folder: &Path, name: &str) -> Result<(AtomicFile, Digest)> {
    let hasher = Arc::new(Mutex::new(blake3::Hasher::new()));
    let written = Arc::clone(&hasher);
    let file = AtomicFile::create(folder.join(name))?.watched_by(move |bytes: &[u8]| {
        written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .update(bytes);
    });
    Ok((file, Digest(hasher)))
}

impl Digest {
    /// The description of the file `name`, once it is finished.
    pub(super) fn describe(&self, name: &str) -> ManifestFile {
        let hasher = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ManifestFile {
            name: name.to_owned(),
            size: hasher.count(),
            blake3: hasher.finalize().to_hex().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_hash_is_that_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, digest) = begin(folder.path(), "state").unwrap();
        for length in [5, 3 << 20, 0, 40 << 20] {
            file.write_all(&vec![7; length]).unwrap();
        }
        file.commit().unwrap();
        let read = ManifestFile::of(folder.path(), "state").unwrap();
        assert_eq!(digest.describe("state"), read);
    }
}
