//! Log files: `FOLDER/RUN_RANDOM/attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json}`.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::streams::{Selected, Streams};
use crate::error::{Error, Result};

/// The log folder that stands for none.
const NOWHERE: &str = "/dev/null";

/// The folder of one run.
#[derive(Debug)]
pub(crate) struct LogFolder {
    path: PathBuf,
    streams: Streams,
}

/// The files of one rank in one attempt.
#[derive(Debug)]
pub(crate) struct RankFolder {
    pub(crate) path: PathBuf,
    pub(crate) stdout: Option<LogFile>,
    pub(crate) stderr: Option<LogFile>,
}

/// A file that gets a copy of one stream.
#[derive(Debug)]
pub(crate) struct LogFile {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
}

impl LogFolder {
    /// Makes a new folder for the run `run_id` below `parent`, which is made too if it is missing;
    /// `None` if `parent` is `/dev/null`. Without `streams`, both streams of each rank get a file.
    ///
    /// # Errors
    /// [`Error::LogFolder`] if the folder cannot be made.
    pub(crate) fn create(
        parent: &Path,
        run_id: &str,
        streams: Option<&Streams>,
    ) -> Result<Option<Self>> {
        if parent == Path::new(NOWHERE) {
            return Ok(None);
        }
        let prefix = format!("{}_", run_id.replace('/', "_"));
        let create = || {
            fs::create_dir_all(parent)?;
            tempfile::Builder::new()
                .prefix(&prefix)
                // As far as the mask of this process allows: others may read logs.
                .permissions(Permissions::from_mode(0o777))
                .tempdir_in(parent)
        };
        let folder = create().map_err(|source| Error::LogFolder {
            path: parent.to_owned(),
            source,
        })?;
        Ok(Some(Self {
            path: folder.keep(),
            streams: streams.cloned().unwrap_or(Streams::All(Selected::BOTH)),
        }))
    }

    /// Makes the files of one rank.
    ///
    /// # Errors
    /// [`Error::LogFolder`] if one of them cannot be made.
    pub(crate) fn open(&self, attempt: usize, local_rank: usize) -> Result<RankFolder> {
        let path = self
            .path
            .join(format!("attempt_{attempt}"))
            .join(local_rank.to_string());
        let selected = self.streams.of(local_rank);
        let open = |name: &str, wanted: bool| -> io::Result<Option<LogFile>> {
            let path = path.join(name);
            wanted
                .then(|| File::create_new(&path).map(|file| LogFile { file, path }))
                .transpose()
        };
        let create = || {
            fs::create_dir_all(&path)?;
            Ok((
                open("stdout.log", selected.stdout)?,
                open("stderr.log", selected.stderr)?,
            ))
        };
        let (stdout, stderr) = create().map_err(|source| Error::LogFolder {
            path: path.clone(),
            source,
        })?;
        Ok(RankFolder {
            path,
            stdout,
            stderr,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_selected_streams_get_files() {
        let parent = tempfile::tempdir().unwrap();
        let streams = "1:2".parse().unwrap();
        let folder = LogFolder::create(parent.path(), "a/b", Some(&streams)).unwrap();
        let folder = folder.unwrap();
        let first = folder.open(0, 0).unwrap();
        assert!(first.stdout.is_none() && first.stderr.is_none() && first.path.is_dir());
        let second = folder.open(3, 1).unwrap();
        assert!(second.stdout.is_none() && second.stderr.is_some());
        assert!(second.path.ends_with("attempt_3/1"));
        let run = folder.path.file_name().unwrap().to_str().unwrap();
        assert!(run.starts_with("a_b_") && run.len() > "a_b_".len(), "{run}");
    }

    #[test]
    fn nowhere_is_no_folder_and_a_file_is_refused() {
        let none = LogFolder::create(Path::new(NOWHERE), "none", None).unwrap();
        assert!(none.is_none());
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        let error = LogFolder::create(&file, "none", None).unwrap_err();
        assert!(matches!(error, Error::LogFolder { .. }));
    }
}
