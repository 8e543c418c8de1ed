//! Folders that are whole or absent.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::atomic_file::{flush_folder, folder_of};
use crate::error::{Error, Result};

/// A new folder that appears under its name only when it is complete.
///
/// Files go to a hidden folder beside it (`.NAME.XXXXXX.partial`), which [`commit`](Self::commit)
/// renames. Whatever fails or is killed before that, there is nothing under the target name, or
/// the empty folder that was there. Dropping without commit removes the hidden folder.
#[derive(Debug)]
pub struct AtomicFolder {
    target: PathBuf,
    partial: TempDir,
}

impl AtomicFolder {
    /// Begins the folder that will be at `target`. The folder above it must exist.
    ///
    /// # Errors
    /// [`Error::Occupied`] if there is a folder with something in it, [`Error::Fixed`] if there is a
    /// link or a mount point, [`Error::Write`] if there is a file, or the hidden folder cannot be made.
    pub fn create(target: impl AsRef<Path>) -> Result<Self> {
        // With a slash behind its name, a link would be looked through.
        let target: PathBuf = target.as_ref().components().collect();
        let target = target.as_path();
        let failing = |source| Error::Write {
            path: target.to_owned(),
            source,
        };
        let is_occupied = match fs::read_dir(target) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => return Err(failing(error)),
        };
        if is_occupied {
            return Err(Error::Occupied {
                path: target.to_owned(),
            });
        }
        if is_fixed(target).map_err(failing)? {
            return Err(Error::Fixed {
                path: target.to_owned(),
            });
        }
        let name = target
            .file_name()
            .ok_or_else(|| failing(std::io::ErrorKind::InvalidInput.into()))?;
        let prefix = format!(".{}.", name.to_string_lossy());
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(".partial");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            // As any new folder, less what the user's mask takes away.
            builder.permissions(fs::Permissions::from_mode(0o777));
        }
        let partial = builder.tempdir_in(folder_of(target)).map_err(failing)?;
        Ok(Self {
            target: target.to_owned(),
            partial,
        })
    }

    /// Where files are written meanwhile.
    pub fn path(&self) -> &Path {
        self.partial.path()
    }

    /// Puts the folder in its place. Its files must be on disk already.
    ///
    /// # Errors
    /// [`Error::Write`] if it cannot be renamed: then nothing has changed at the target.
    /// [`Error::FlushFolder`] if only flushing the folder above fails.
    pub fn commit(self) -> Result<()> {
        let Self { target, partial } = self;
        let placed =
            flush_folder(partial.path()).and_then(|()| fs::rename(partial.path(), &target));
        placed.map_err(|source| Error::Write {
            path: target.clone(),
            source,
        })?;
        // There is nothing under the hidden name any more.
        drop(partial.keep());
        flush_folder(folder_of(&target)).map_err(|source| Error::FlushFolder {
            path: target,
            source,
        })
    }
}

/// Whether no other folder can be renamed to what is there: a link, or where another file system
/// begins.
fn is_fixed(target: &Path) -> std::io::Result<bool> {
    let found = match fs::symlink_metadata(target) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        found => found?,
    };
    if found.is_symlink() {
        return Ok(true);
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        Ok(found.dev() != fs::metadata(folder_of(target))?.dev())
    }
    #[cfg(not(unix))]
    {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_in(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn appears_only_on_commit_and_replaces_nothing() {
        let above = tempfile::tempdir().unwrap();
        let target = above.path().join("checkpoint");
        drop(AtomicFolder::create(&target).unwrap());
        assert!(names_in(above.path()).is_empty());
        let folder = AtomicFolder::create(&target).unwrap();
        fs::write(folder.path().join("file"), b"1").unwrap();
        assert!(!target.exists());
        folder.commit().unwrap();
        assert_eq!(names_in(above.path()), ["checkpoint"]);
        assert_eq!(names_in(&target), ["file"]);
        let error = AtomicFolder::create(&target).unwrap_err();
        assert!(matches!(error, Error::Occupied { .. }), "{error}");
        let file = target.join("file");
        let error = AtomicFolder::create(&file).unwrap_err();
        assert!(matches!(error, Error::Write { path, .. } if path == file));
    }

    #[test]
    fn an_empty_folder_is_filled() {
        let above = tempfile::tempdir().unwrap();
        let target = above.path().join("checkpoint");
        fs::create_dir(&target).unwrap();
        let folder = AtomicFolder::create(&target).unwrap();
        fs::write(folder.path().join("file"), b"1").unwrap();
        folder.commit().unwrap();
        assert_eq!(names_in(&target), ["file"]);
    }

    #[cfg(unix)]
    #[test]
    fn what_cannot_be_renamed_over_is_refused_at_once() {
        let above = tempfile::tempdir().unwrap();
        let empty = above.path().join("empty");
        fs::create_dir(&empty).unwrap();
        let link = above.path().join("link");
        std::os::unix::fs::symlink(&empty, &link).unwrap();
        for name in ["link", "link/"] {
            let error = AtomicFolder::create(above.path().join(name)).unwrap_err();
            assert!(
                matches!(&error, Error::Fixed { path } if *path == link),
                "{error}"
            );
        }
        assert!(names_in(&empty).is_empty());
    }
}
