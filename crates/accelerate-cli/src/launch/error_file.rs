//! What a program says about its own failure, in the file that `TORCHELASTIC_ERROR_FILE` names.
//!
//! Python programs write it with `torch.distributed.elastic`'s decorator `record`; any program may.
//! With a log folder it is there. Without, the keeper of the rank makes it, hands its content over
//! to the launcher when the program has ended, and takes it away: also when the launcher is gone.

use std::{
    env,
    fs::{self, DirBuilder, File},
    hash::{BuildHasher as _, RandomState},
    io::{self, Read as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::{NamedTempFile, TempPath};

const NAME: &str = "error.json";

/// More than this is not read.
const LONGEST: u64 = 1 << 20;

/// What the launcher knows of the error file of one rank.
#[derive(Debug)]
pub(crate) enum ErrorFile {
    /// It is in the log folder, and stays there.
    Logged(PathBuf),
    /// The keeper makes it, and hands its content over.
    Kept { terms: Terms, _copy: CopyKept },
}

/// What a keeper is told about the error file of its program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// A folder to make and to take away, for the file.
    folder: PathBuf,
    /// Where the content goes at the end.
    copy: PathBuf,
}

/// What has to live as long as the copy.
#[derive(Debug)]
pub(crate) enum CopyKept {
    /// It has no name on disk: nothing is left behind however the launcher ends.
    #[cfg(target_os = "linux")]
    Memory { _file: File },
    /// Removes the file.
    Name { _path: TempPath },
}

/// The error file that a keeper makes for its program. Dropping it takes it away.
#[derive(Debug)]
pub(crate) struct OwnErrorFile {
    terms: Terms,
    path: PathBuf,
}

/// What a program said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reported {
    /// The error in a line or two.
    pub(crate) message: String,
    /// When it happened, in seconds since 1970.
    pub(crate) timestamp: Option<u64>,
    /// Everything.
    pub(crate) content: Value,
}

impl ErrorFile {
    /// The file in the log folder of a rank.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self::Logged(folder.join(NAME))
    }

    /// A file that the keeper makes, and that goes when this value does, at the latest.
    ///
    /// # Errors
    /// If the system has no room for the copy.
    pub(crate) fn kept() -> io::Result<Self> {
        let (copy, kept) = match CopyKept::in_memory() {
            Ok(place) => place,
            Err(_) => CopyKept::with_name()?,
        };
        let random = RandomState::new().hash_one(&copy);
        let folder = env::temp_dir().join(format!("accelerate-{}-{random:016x}", process::id()));
        Ok(Self::Kept {
            terms: Terms { folder, copy },
            _copy: kept,
        })
    }

    /// What the keeper is told, if it has a part in this.
    pub(crate) fn terms(&self) -> Option<&Terms> {
        match self {
            Self::Logged(_) => None,
            Self::Kept { terms, .. } => Some(terms),
        }
    }

    /// What the program wrote, if it did.
    pub(crate) fn read(&self) -> Option<Reported> {
        let (Self::Logged(path)
        | Self::Kept {
            terms: Terms { copy: path, .. },
            ..
        }) = self;
        let mut text = Vec::new();
        let file = File::open(path).ok()?;
        file.take(LONGEST).read_to_end(&mut text).ok()?;
        Reported::parse(&String::from_utf8_lossy(&text))
    }
}

impl Drop for ErrorFile {
    fn drop(&mut self) {
        if let Self::Kept { terms, .. } = self {
            // The keeper has done it, unless something killed it.
            let _ = fs::remove_dir_all(&terms.folder);
        }
    }
}

impl CopyKept {
    #[cfg(target_os = "linux")]
    fn in_memory() -> io::Result<(PathBuf, Self)> {
        use std::os::fd::AsRawFd as _;

        use rustix::fs::{MemfdFlags, memfd_create};
        let file = File::from(memfd_create(NAME, MemfdFlags::CLOEXEC)?);
        let (process, descriptor) = (process::id(), file.as_raw_fd());
        let path = PathBuf::from(format!("/proc/{process}/fd/{descriptor}"));
        // Some containers have no usable `/proc`.
        File::options().write(true).open(&path)?;
        Ok((path, Self::Memory { _file: file }))
    }

    #[cfg(not(target_os = "linux"))]
    fn in_memory() -> io::Result<(PathBuf, Self)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn with_name() -> io::Result<(PathBuf, Self)> {
        let path = NamedTempFile::with_prefix("accelerate-")?.into_temp_path();
        Ok((path.to_path_buf(), Self::Name { _path: path }))
    }
}

impl OwnErrorFile {
    /// Makes room for the error file; `None` if there is none. The file itself is left to the
    /// program.
    pub(crate) fn create(terms: &Terms) -> Option<Self> {
        DirBuilder::new().mode(0o700).create(&terms.folder).ok()?;
        Some(Self {
            path: terms.folder.join(NAME),
            terms: terms.clone(),
        })
    }

    /// Where the program may write.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the launcher what the program wrote. If the launcher is gone, nobody misses it.
    pub(crate) fn hand_over(&self) {
        if let Ok(content) = fs::read(&self.path) {
            let _ = fs::write(&self.terms.copy, content);
        }
    }
}

impl Drop for OwnErrorFile {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = fs::remove_dir_all(&self.terms.folder);
    }
}

impl Reported {
    /// Reads `{"message": {"message": .., "extraInfo": {"py_callstack": .., "timestamp": ..}}}`, a
    /// plain text in place of the inner object, or any other text.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() {
            return None;
        }
        let content: Value = serde_json::from_str(text).unwrap_or_else(|_| text.into());
        let outer = &content["message"];
        let message = [&outer["message"], outer, &content]
            .into_iter()
            .find_map(Value::as_str)
            .unwrap_or(text);
        let timestamp = &outer["extraInfo"]["timestamp"];
        let timestamp = timestamp
            .as_str()
            .and_then(|text| text.parse().ok())
            .or_else(|| timestamp.as_u64());
        Some(Self {
            message: message.trim().to_owned(),
            timestamp,
            content,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    /// As the decorator of PyTorch 2.13 writes it.
    const RECORDED: &str = r#"{"message": {"message": "RuntimeError: boom", "extraInfo":
        {"py_callstack": "Traceback (most recent call last):\n", "timestamp": "1700000000"}}}"#;

    #[test]
    fn what_a_program_writes_reaches_the_launcher() {
        let file = ErrorFile::kept().unwrap();
        assert_eq!(file.read(), None);
        let terms = file.terms().unwrap().clone();
        let own = OwnErrorFile::create(&terms).unwrap();
        own.hand_over();
        assert_eq!(file.read(), None, "nothing was written");
        fs::write(own.path(), RECORDED).unwrap();
        own.hand_over();
        drop(own);
        assert!(!terms.folder.exists());

        let reported = file.read().unwrap();
        assert_eq!(reported.message, "RuntimeError: boom");
        assert_eq!(reported.timestamp, Some(1_700_000_000));
        let which = || fs::metadata(&terms.copy).map(|found| (found.dev(), found.ino()));
        let kept = which().unwrap();
        drop(file);
        // By now the number of the closed file may be another file's.
        assert!(which().ok() != Some(kept));
    }

    #[test]
    fn the_launcher_takes_away_what_a_killed_keeper_left() {
        let file = ErrorFile::kept().unwrap();
        let terms = file.terms().unwrap().clone();
        fs::create_dir(&terms.folder).unwrap();
        assert!(OwnErrorFile::create(&terms).is_none(), "not ours");
        drop(file);
        assert!(!terms.folder.exists());
    }

    #[test]
    fn other_forms_have_a_message_too() {
        let message = |text| Reported::parse(text).map(|reported| reported.message);
        assert_eq!(message(r#"{"message": "short"}"#), Some("short".to_owned()));
        assert_eq!(message("plain text\n"), Some("plain text".to_owned()));
        assert_eq!(message(r#"{"code": 3}"#), Some(r#"{"code": 3}"#.to_owned()));
        assert_eq!(message(" \n"), None);
    }

    #[test]
    fn a_file_that_was_never_written_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(ErrorFile::in_folder(folder.path()).read(), None);
    }
}
