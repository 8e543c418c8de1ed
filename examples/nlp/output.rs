//! The folder that the trained model goes to.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use accelerate::checkpoint::AtomicFile;
use accelerate_models::PretrainedModel;
use accelerate_models::pretrained::WEIGHTS_FILE;
use accelerate_models::tokenizer::TOKENIZER_FILE;

/// Why the model cannot be saved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// The folder cannot be made.
    #[error("cannot make the folder `{}`; name another one with `--output`", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The folder cannot be written.
    #[error("cannot write into the folder `{}`; name another one with `--output`", path.display())]
    File {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<accelerate_models::Error>,
    },
    /// A file cannot be copied.
    #[error("cannot copy `{file}` into the folder `{}`", path.display())]
    Copy {
        /// The file.
        file: &'static str,
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Makes the folder and tries to write there, so that training is not in vain.
pub(crate) fn prepare(folder: &Path) -> Result<(), OutputError> {
    fs::create_dir_all(folder).map_err(|source| OutputError::Folder {
        path: folder.to_owned(),
        source,
    })?;
    // Nothing appears: the file is never completed.
    AtomicFile::create(folder.join(WEIGHTS_FILE))
        .map_err(|error| unwritable(folder, accelerate::Error::from(error)))?;
    Ok(())
}

/// Writes the model as a folder that can be loaded again; every file is whole or absent.
///
/// `source` is the folder that it was loaded from. It may be the same.
pub(crate) fn save(
    model: &impl PretrainedModel,
    source: &Path,
    folder: &Path,
) -> Result<(), OutputError> {
    let failed = |error| unwritable(folder, accelerate::Error::from(error));
    let mut copy = AtomicFile::create(folder.join(TOKENIZER_FILE)).map_err(failed)?;
    File::open(source.join(TOKENIZER_FILE))
        .and_then(|mut original| io::copy(&mut original, &mut copy))
        .map_err(|source| OutputError::Copy {
            file: TOKENIZER_FILE,
            path: folder.to_owned(),
            source,
        })?;
    copy.commit().map_err(failed)?;
    model
        .save_pretrained(folder)
        .map_err(|error| unwritable(folder, error))
}

fn unwritable(folder: &Path, error: impl Into<accelerate_models::Error>) -> OutputError {
    OutputError::File {
        path: folder.to_owned(),
        source: Box::new(error.into()),
    }
}
