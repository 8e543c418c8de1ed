//! The folder that the trained model goes to.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use accelerate::checkpoint::{AtomicFile, Metadata, save_weights};
use accelerate::nn::Module;

const WEIGHTS: &str = "model.safetensors";
/// What the trained model has in common with the one that was loaded.
const COPIED: [&str; 2] = ["config.json", "tokenizer.json"];

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
        source: Box<accelerate::Error>,
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
    AtomicFile::create(folder.join(WEIGHTS)).map_err(|error| unwritable(folder, error))?;
    Ok(())
}

/// Writes the model as a folder that can be loaded again; every file is whole or absent.
///
/// `source` is the folder that it was loaded from. It may be the same.
pub(crate) fn save(model: &dyn Module, source: &Path, folder: &Path) -> Result<(), OutputError> {
    for file in COPIED {
        let mut copy =
            AtomicFile::create(folder.join(file)).map_err(|error| unwritable(folder, error))?;
        File::open(source.join(file))
            .and_then(|mut original| io::copy(&mut original, &mut copy))
            .map_err(|source| OutputError::Copy {
                file,
                path: folder.to_owned(),
                source,
            })?;
        copy.commit().map_err(|error| unwritable(folder, error))?;
    }
    save_weights(model, folder.join(WEIGHTS), &Metadata::pytorch())
        .map_err(|error| unwritable(folder, error))
}

fn unwritable(folder: &Path, error: impl Into<accelerate::Error>) -> OutputError {
    OutputError::File {
        path: folder.to_owned(),
        source: Box::new(error.into()),
    }
}
