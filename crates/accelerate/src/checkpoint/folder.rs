//! A checkpoint folder that is whole or absent.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use accelerate_formats::manifest::{CheckpointFault, MANIFEST_FILE, Manifest};

use crate::{Error, Result};

/// A checkpoint that is being written, beside the place where it will be.
///
/// The files go to a hidden folder (`.NAME.partial`), which [`commit`](Self::commit) flushes
/// and renames. Whatever fails or is killed before, the folder under the target name is the old
/// one or none. Only one process writes to a target at a time; what a killed one left behind is
/// removed by the next.
#[derive(Debug)]
pub(crate) struct PartialCheckpoint {
    target: PathBuf,
    partial: PathBuf,
    committed: bool,
    /// Held as long as this one writes; the system lets go of it when the process ends.
    _lock: File,
}

/// Where the parts of a checkpoint that will be at `target` go meanwhile.
pub(crate) fn partial_path(target: &Path) -> PathBuf {
    sibling(target, "partial")
}

fn sibling(target: &Path, ending: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{ending}"))
}

impl PartialCheckpoint {
    /// Begins the checkpoint that will be at `target`; the folders above it are made.
    ///
    /// # Errors
    /// [`Error::CheckpointTarget`] if something other than a checkpoint is there,
    /// [`Error::CheckpointBusy`] if another process writes to it, [`Error::Io`] if a folder cannot
    /// be made.
    pub(crate) fn begin(target: &Path) -> Result<Self> {
        let target = std::path::absolute(target).map_err(|source| io("find", target, source))?;
        refuse_strangers(&target)?;
        let parent = target.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(parent).map_err(|source| io("make the folder", parent, source))?;
        let lock = lock(&target)?;
        let partial = partial_path(&target);
        remove_if_there(&partial)?;
        std::fs::create_dir(&partial).map_err(|source| io("make the folder", &partial, source))?;
        Ok(Self {
            target,
            partial,
            committed: false,
            _lock: lock,
        })
    }

    /// Where files are written meanwhile.
    pub(crate) fn path(&self) -> &Path {
        &self.partial
    }

    /// Writes the manifest and puts the folder in its place.
    ///
    /// # Errors
    /// [`Error::Io`]; an earlier checkpoint at the target is as it was.
    pub(crate) fn commit(mut self, manifest: &Manifest) -> Result<PathBuf> {
        let written = manifest.write(&self.partial);
        written.map_err(|source| io("write", &self.partial.join(MANIFEST_FILE), source))?;
        flush(&self.partial)?;
        if self.target.exists() {
            self.exchange()?;
        } else {
            std::fs::rename(&self.partial, &self.target)
                .map_err(|source| io("put in place", &self.target, source))?;
        }
        self.committed = true;
        flush(self.target.parent().unwrap_or(Path::new("/")))?;
        Ok(self.target.clone())
    }

    /// Puts the new folder into the place of an old one, which is removed.
    fn exchange(&self) -> Result<()> {
        let old = sibling(&self.target, "old");
        remove_if_there(&old)?;
        let renamed = rustix::fs::renameat_with(
            rustix::fs::CWD,
            &self.partial,
            rustix::fs::CWD,
            &self.target,
            rustix::fs::RenameFlags::EXCHANGE,
        );
        if renamed.is_ok() {
            // What was the target is now under the partial name.
            return remove_if_there(&self.partial);
        }
        // A file system without an exchange: for a moment neither is there, but both are whole.
        let step = |from: &Path, to: &Path| {
            std::fs::rename(from, to).map_err(|source| io("put in place", to, source))
        };
        step(&self.target, &old)?;
        step(&self.partial, &self.target).inspect_err(|_| {
            let _ = std::fs::rename(&old, &self.target);
        })?;
        remove_if_there(&old)
    }
}

impl Drop for PartialCheckpoint {
    fn drop(&mut self) {
        if !self.committed {
            let _ = remove_if_there(&self.partial);
        }
        let _ = std::fs::remove_file(sibling(&self.target, "lock"));
    }
}

/// A folder that is not empty and has no manifest was not made by saving: it stays as it is.
fn refuse_strangers(target: &Path) -> Result<()> {
    let problem = match std::fs::read_dir(target) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => "it is a file",
        Err(source) => return Err(io("look into", target, source)),
        Ok(mut entries) => {
            let empty = entries.next().is_none();
            if empty || Manifest::read(target) != Err(CheckpointFault::NoManifest) {
                return Ok(());
            }
            "it holds something that is no checkpoint of this library"
        }
    };
    Err(Error::CheckpointTarget {
        path: target.to_owned(),
        problem,
    })
}

fn lock(target: &Path) -> Result<File> {
    let path = sibling(target, "lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|source| io("make", &path, source))?;
    let busy = || Error::CheckpointBusy {
        path: target.to_owned(),
    };
    match file.try_lock() {
        // Whoever held it removes the file: then this is no longer the one that others see.
        Ok(()) if !is_still(&file, &path) => Err(busy()),
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(busy()),
        Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => {
            Ok(file)
        }
        Err(TryLockError::Error(source)) => Err(io("lock", &path, source)),
    }
}

/// Whether `path` still leads to `file`.
fn is_still(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let place = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let there = std::fs::metadata(path).map(place).ok();
    there.is_some() && there == file.metadata().map(place).ok()
}

/// Removes a folder, its manifest first, so that no half of it passes for a checkpoint.
pub(super) fn remove_if_there(folder: &Path) -> Result<()> {
    let _ = std::fs::remove_file(folder.join(MANIFEST_FILE));
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(io("remove", folder, error))
        }
        _ => Ok(()),
    }
}

/// Flushes a file, or the entries of a folder, to disk.
pub(super) fn flush(folder: &Path) -> Result<()> {
    use std::io::ErrorKind::{InvalidInput, Unsupported};
    match File::open(folder).and_then(|opened| opened.sync_all()) {
        Err(error) if !matches!(error.kind(), InvalidInput | Unsupported) => {
            Err(io("flush", folder, error))
        }
        _ => Ok(()),
    }
}

pub(super) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use accelerate_formats::manifest::{ManifestFile, Verify};

    use super::*;

    fn save(target: &Path, content: &str) -> Result<PathBuf> {
        let partial = PartialCheckpoint::begin(target)?;
        std::fs::write(partial.path().join("state"), content).unwrap();
        let file = ManifestFile::of(partial.path(), "state").unwrap();
        partial.commit(&Manifest::new(1, 0, vec![file]))
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_new_one_takes_the_place_of_the_old_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("deep/down/step_7");
        for content in ["first", "second"] {
            assert_eq!(save(&target, content).unwrap(), target);
            assert_eq!(
                std::fs::read_to_string(target.join("state")).unwrap(),
                content
            );
            Manifest::verify(&target, Verify::Hashes).unwrap();
            assert_eq!(names(target.parent().unwrap()), ["step_7"]);
        }
    }

    #[test]
    fn one_that_is_given_up_leaves_the_old_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("one");
        save(&target, "old").unwrap();
        let partial = PartialCheckpoint::begin(&target).unwrap();
        std::fs::write(partial.path().join("state"), "half").unwrap();
        drop(partial);
        assert_eq!(names(folder.path()), ["one"]);
        assert_eq!(
            std::fs::read_to_string(target.join("state")).unwrap(),
            "old"
        );
    }

    #[test]
    fn what_a_killed_process_left_is_swept_away() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("one");
        let partial = partial_path(&target);
        std::fs::create_dir(&partial).unwrap();
        std::fs::write(partial.join("rest"), "x").unwrap();
        save(&target, "new").unwrap();
        assert_eq!(names(&target), [MANIFEST_FILE, "state"]);
    }

    #[test]
    fn two_do_not_write_to_one_place() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("one");
        let first = PartialCheckpoint::begin(&target).unwrap();
        let error = save(&target, "other").unwrap_err();
        assert!(
            matches!(&error, Error::CheckpointBusy { path } if *path == target),
            "{error}"
        );
        drop(first);
        save(&target, "other").unwrap();
    }

    #[test]
    fn what_is_no_checkpoint_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("notes.txt"), "mine").unwrap();
        let error = save(folder.path(), "x").unwrap_err();
        assert!(matches!(error, Error::CheckpointTarget { .. }), "{error}");
        let error = save(&folder.path().join("notes.txt"), "x").unwrap_err();
        assert!(error.to_string().contains("it is a file"), "{error}");
        assert_eq!(names(folder.path()), ["notes.txt"]);
    }
}
