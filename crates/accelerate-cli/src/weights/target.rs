//! The folder that a command writes into.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::error::{Result, WeightsError};

/// A folder for output that is there. If it was made for this, it is removed again unless something
/// was [kept](Self::keep) in it.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    is_new: bool,
}

impl Target {
    /// Finds the folder, or makes it; the folder above it must be there, so that a slip of the pen
    /// makes no tree of folders.
    ///
    /// # Errors
    /// [`WeightsError::OutputIsFile`], [`WeightsError::MakeFolder`].
    pub(super) fn folder(path: &Path) -> Result<Self> {
        let is_new = match fs::create_dir(path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !path.is_dir() {
                    return Err(WeightsError::OutputIsFile {
                        path: path.to_owned(),
                    });
                }
                false
            }
            Err(source) => {
                return Err(WeightsError::MakeFolder {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        Ok(Self {
            path: path.to_owned(),
            is_new,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Something was written into it: it stays.
    pub(super) fn keep(mut self) {
        self.is_new = false;
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.is_new {
            // Only if it is empty, which it should be.
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// Whether a path that need not exist lies in a folder, or is that folder.
pub(super) fn is_within(path: &Path, folder: &Path) -> bool {
    let Ok(folder) = fs::canonicalize(folder) else {
        return false;
    };
    let Ok(absolute) = std::path::absolute(path) else {
        return false;
    };
    // The part that exists, with links followed.
    let existing = absolute
        .ancestors()
        .find_map(|path| fs::canonicalize(path).ok());
    existing.is_some_and(|existing| existing.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_made_in_vain_is_gone_again() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("out");
        drop(Target::folder(&path).unwrap());
        assert!(!path.exists());
        Target::folder(&path).unwrap().keep();
        assert!(path.is_dir());
        drop(Target::folder(&path).unwrap());
        assert!(path.is_dir(), "it was there before");
        let deep = Target::folder(&above.path().join("no/such")).unwrap_err();
        assert!(matches!(deep, WeightsError::MakeFolder { .. }), "{deep}");
    }

    #[test]
    fn paths_within_a_folder_are_known_through_links() {
        let above = tempfile::tempdir().unwrap();
        let inside = above.path().join("a");
        fs::create_dir(&inside).unwrap();
        let link = above.path().join("link");
        std::os::unix::fs::symlink(&inside, &link).unwrap();
        assert!(is_within(&inside, &inside));
        assert!(is_within(&inside.join("new/deep"), &inside));
        assert!(is_within(&link.join("new"), &inside));
        assert!(!is_within(&above.path().join("ab"), &inside));
    }
}
