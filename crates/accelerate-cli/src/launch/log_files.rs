//! Log files: `FOLDER/RUN/attempt_0/LOCAL_RANK/{stdout,stderr}.log`.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::error::{Error, Result};

/// The folder of one run.
#[derive(Debug)]
pub(crate) struct LogFolder {
    path: PathBuf,
}

/// The files of one rank.
#[derive(Debug)]
pub(crate) struct LogFiles {
    pub(crate) stdout: File,
    pub(crate) stderr: File,
}

impl LogFolder {
    /// Makes a new folder for this run below `parent`, which is made too if it is missing.
    pub(crate) fn create(parent: &Path) -> Result<Self> {
        let refused = |source| Error::LogFolder {
            path: parent.to_owned(),
            source,
        };
        fs::create_dir_all(parent).map_err(refused)?;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let path = parent.join(format!("none_{:x}_{}", now.as_millis(), process::id()));
        fs::create_dir(&path).map_err(refused)?;
        Ok(Self { path })
    }

    /// Makes the files of one rank.
    pub(crate) fn open(&self, local_rank: usize) -> Result<LogFiles> {
        let folder = self.path.join("attempt_0").join(local_rank.to_string());
        let create = || -> io::Result<LogFiles> {
            fs::create_dir_all(&folder)?;
            Ok(LogFiles {
                stdout: File::create_new(folder.join("stdout.log"))?,
                stderr: File::create_new(folder.join("stderr.log"))?,
            })
        };
        create().map_err(|source| Error::LogFolder {
            path: folder.clone(),
            source,
        })
    }
}
