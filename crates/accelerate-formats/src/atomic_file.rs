//! Files that are whole or absent.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::thread;

use tempfile::{NamedTempFile, TempPath};

use crate::error::{Error, Result};

/// Large enough that small tensors do not cost a system call each; larger writes go past it.
const BUFFER_BYTES: usize = 1 << 20;
/// So much is written and shown to a watcher at the same time.
const PIECE_BYTES: usize = 32 << 20;
/// Less is not worth a thread.
const THREAD_BYTES: usize = 256 << 10;

/// Sees the bytes of a file in their order, as they are written; on a thread of its own where
/// they are many.
pub type Watcher = Box<dyn FnMut(&[u8]) + Send>;

/// A file that appears under its name only when it is complete.
///
/// The bytes go to a hidden file in the same folder (`.NAME.XXXXXX.partial`), which
/// [`commit`](Self::commit) flushes to disk and renames. Whatever fails or is killed before
/// that, the file under the target name is the old one or none. Dropping without commit removes
/// the hidden file; only a killed process leaves one, and it may be deleted.
///
/// A link at the target name is replaced, not followed.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    partial: BufWriter<Watched>,
}

/// The hidden file, and who watches what goes into it.
struct Watched {
    file: NamedTempFile,
    watcher: Option<Watcher>,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched")
            .field("file", &self.file)
            .field("watched", &self.watcher.is_some())
            .finish()
    }
}

impl Write for Watched {
    /// Writes all of it, or of a long piece the first part: after an error the file is given up.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(watcher) = &mut self.watcher else {
            return self.file.write(bytes);
        };
        let piece = bytes.get(..PIECE_BYTES).unwrap_or(bytes);
        if piece.len() < THREAD_BYTES {
            watcher(piece);
            self.file.write_all(piece)?;
        } else {
            let file = &mut self.file;
            thread::scope(|scope| {
                scope.spawn(|| watcher(piece));
                file.write_all(piece)
            })?;
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl AtomicFile {
    /// Begins the file that will be at `path`. Its folder must exist.
    ///
    /// # Errors
    /// [`Error::NotAFile`] if there is a folder or device at `path`, [`Error::Write`] if the
    /// hidden file cannot be made.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::create_with(path.as_ref(), |partial| {
            File::options().write(true).create_new(true).open(partial)
        })
    }

    /// As [`create`](Self::create), with the hidden file opened by `open`.
    pub(crate) fn create_with(
        path: &Path,
        open: impl FnMut(&Path) -> io::Result<File>,
    ) -> Result<Self> {
        let failing = |source| Error::Write {
            path: path.to_owned(),
            source,
        };
        // Renaming over a device would replace the device.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(Error::NotAFile {
                path: path.to_owned(),
            });
        }
        let name = path
            .file_name()
            .ok_or_else(|| failing(io::ErrorKind::InvalidInput.into()))?;
        let prefix = format!(".{}.", name.to_string_lossy());
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(".partial");
        let partial = builder.make_in(folder_of(path), open).map_err(failing)?;
        Ok(Self {
            path: path.to_owned(),
            partial: BufWriter::with_capacity(
                BUFFER_BYTES,
                Watched {
                    file: partial,
                    watcher: None,
                },
            ),
        })
    }

    /// Shows everything that is written from now on to `watcher`, so that a hash of it needs no
    /// second reading.
    #[must_use]
    pub fn watched_by(mut self, watcher: impl FnMut(&[u8]) + Send + 'static) -> Self {
        self.partial.get_mut().watcher = Some(Box::new(watcher));
        self
    }

    /// Where the file will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the file in its place without waiting for the disk: whole or absent if this process is
    /// killed, but not if the power fails. For data that can be made again.
    ///
    /// # Errors
    /// [`Error::Write`] if it fails: then nothing has changed at the target.
    pub fn commit_unflushed(self) -> Result<()> {
        let Self { path, partial } = self;
        let partial = partial.into_inner().map_err(io::IntoInnerError::into_error);
        let placed = partial.and_then(|partial| Ok(partial.file.persist(&path)?));
        placed
            .map(drop)
            .map_err(|source| Error::Write { path, source })
    }

    /// Flushes everything to disk and puts the file in its place.
    ///
    /// # Errors
    /// [`Error::Write`] if any of it fails: then nothing has changed at the target.
    /// [`Error::FlushFolder`] if only the last step, flushing the folder, fails: then the file is
    /// in place.
    pub fn commit(self) -> Result<()> {
        self.seal()?.place()
    }

    /// Flushes everything to disk, still under the hidden name: for several files that are put in
    /// place together when all of them are there.
    ///
    /// # Errors
    /// [`Error::Write`] if it fails: then the hidden file is removed.
    pub fn seal(self) -> Result<SealedFile> {
        let Self { path, partial } = self;
        let flushed = || -> io::Result<TempPath> {
            let partial = partial
                .into_inner()
                .map_err(io::IntoInnerError::into_error)?
                .file;
            partial.as_file().sync_all()?;
            Ok(partial.into_temp_path())
        };
        match flushed() {
            Ok(partial) => Ok(SealedFile { path, partial }),
            Err(source) => Err(Error::Write { path, source }),
        }
    }
}

/// A file that is complete on disk, under its hidden name. Dropping it removes it.
#[derive(Debug)]
pub struct SealedFile {
    path: PathBuf,
    partial: TempPath,
}

impl SealedFile {
    /// Where the file will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// [`Error::Write`] if it cannot be renamed: then nothing has changed at the target.
    /// [`Error::FlushFolder`] if only flushing the folder fails: then the file is in place.
    pub fn place(self) -> Result<()> {
        let Self { path, partial } = self;
        partial.persist(&path).map_err(|refused| Error::Write {
            path: path.clone(),
            source: refused.error,
        })?;
        flush_folder(folder_of(&path)).map_err(|source| Error::FlushFolder { path, source })
    }
}

/// Makes the renaming itself safe against power loss, where the file system knows how.
#[cfg(unix)]
pub(crate) fn flush_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        flushed => flushed,
    }
}

#[cfg(not(unix))]
pub(crate) fn flush_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.partial.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.partial.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_in(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn appears_only_on_commit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"abc").unwrap();
        file.flush().unwrap();
        assert!(!path.exists());
        let partial = names_in(folder.path());
        assert!(
            partial[0].starts_with(".data.") && partial[0].ends_with(".partial"),
            "{partial:?}"
        );
        file.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abc");
        assert_eq!(names_in(folder.path()), ["data"]);
    }

    #[test]
    fn a_sealed_file_waits_for_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, b"old").unwrap();
        let sealed = |bytes: &[u8]| {
            let mut file = AtomicFile::create(&path).unwrap();
            file.write_all(bytes).unwrap();
            file.seal().unwrap()
        };
        drop(sealed(b"dropped"));
        assert_eq!(names_in(folder.path()), ["data"]);
        let waiting = sealed(b"new");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        waiting.place().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(names_in(folder.path()), ["data"]);
    }

    #[test]
    fn unflushed_files_are_in_place_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"abc").unwrap();
        file.commit_unflushed().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"abc");
        assert_eq!(names_in(folder.path()), ["data"]);
    }

    #[test]
    fn a_watcher_sees_every_byte_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let (tell, told) = std::sync::mpsc::channel();
        let mut file = AtomicFile::create(&path)
            .unwrap()
            .watched_by(move |bytes: &[u8]| tell.send(bytes.to_vec()).unwrap());
        // Below the buffer, above it, above what is worth a thread, and above one piece.
        for (fill, length) in [(1, 3), (2, BUFFER_BYTES), (3, PIECE_BYTES + 5), (4, 7)] {
            file.write_all(&vec![fill; length]).unwrap();
        }
        file.commit().unwrap();
        let seen: Vec<u8> = told.iter().flatten().collect();
        assert!(seen == std::fs::read(&path).unwrap());
        assert_eq!(seen.len(), 3 + BUFFER_BYTES + PIECE_BYTES + 5 + 7);
    }

    #[test]
    fn dropping_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, b"old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(names_in(folder.path()), ["data"]);
    }

    #[test]
    fn a_folder_at_the_target_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = AtomicFile::create(folder.path()).unwrap_err();
        assert!(matches!(error, Error::NotAFile { .. }), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_device_at_the_target_is_refused() {
        let error = AtomicFile::create("/dev/null").unwrap_err();
        assert!(matches!(error, Error::NotAFile { .. }), "{error}");
    }

    #[test]
    fn a_folder_that_is_absent_or_a_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), b"").unwrap();
        for parent in ["absent", "file"] {
            let path = folder.path().join(parent).join("data");
            let error = AtomicFile::create(&path).unwrap_err();
            assert!(
                matches!(&error, Error::Write { path: named, .. } if *named == path),
                "{error}"
            );
        }
        assert_eq!(names_in(folder.path()), ["file"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_new_file_has_the_usual_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| {
            std::fs::metadata(folder.path().join(name))
                .unwrap()
                .permissions()
                .mode()
        };
        std::fs::write(folder.path().join("usual"), b"").unwrap();
        AtomicFile::create(folder.path().join("ours"))
            .unwrap()
            .commit()
            .unwrap();
        assert_eq!(mode("ours"), mode("usual"));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_replaced_and_its_target_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (blob, link) = (folder.path().join("blob"), folder.path().join("link"));
        std::fs::write(&blob, b"shared").unwrap();
        std::os::unix::fs::symlink(&blob, &link).unwrap();
        let mut file = AtomicFile::create(&link).unwrap();
        file.write_all(b"mine").unwrap();
        file.commit().unwrap();
        assert_eq!(std::fs::read(&blob).unwrap(), b"shared");
        assert_eq!(std::fs::read(&link).unwrap(), b"mine");
    }
}
