//! Where a model comes from: a folder of this machine, or the hub.
//!
//! Fetching from the hub takes the cargo feature `hub`, which is off by default. Files go where
//! `huggingface_hub` puts them, so Python and Rust share one cache. These variables are honoured:
//! `HF_HOME`, `HF_HUB_CACHE`, `HF_TOKEN`, `HF_TOKEN_PATH`, `HF_ENDPOINT` and `HF_HUB_OFFLINE`.

#[cfg(feature = "hub")]
mod download;
mod id;
#[cfg(feature = "hub")]
mod settings;

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use accelerate::PartialState;

use crate::{Error, Result};

pub use id::{HubId, HubIdFault};

/// Where a model comes from.
///
/// As text, a folder that exists is that folder, and anything else has to be a [`HubId`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelSource {
    /// A folder with `config.json`, weights and `tokenizer.json`.
    Folder(PathBuf),
    /// A model on the hub.
    Hub(HubId),
}

/// Why a text is no folder of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FolderFault {
    /// There is nothing at this path.
    #[error("it does not exist")]
    Absent,
    /// There is a file at this path.
    #[error("it is a file")]
    NotAFolder,
    /// The system does not tell.
    #[error("it cannot be looked at ({0})")]
    Unreadable(ErrorKind),
}

/// Which files may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Those of the hub; those in the cache where it cannot be reached.
    Hub,
    /// Those that another process of this machine has just put into the cache.
    AfterMainProcess,
}

impl ModelSource {
    /// The folder of the model, fetched first if it is on the hub.
    ///
    /// What is fetched: `config.json`, `tokenizer.json`, `generation_config.json` where there is one,
    /// and the first of these: `model.safetensors`, the files of `model.safetensors.index.json`,
    /// `pytorch_model.bin`, the files of `pytorch_model.bin.index.json`; all of one commit. Files
    /// that the cache has are not fetched again. In a job of several processes use
    /// [`fetch_together`](Self::fetch_together).
    ///
    /// # Errors
    /// [`Error::HubFeature`] where the feature `hub` is off, [`Error::HubNotCached`] if the hub
    /// may not be asked, [`Error::HubNotFound`], [`Error::HubAccess`] or [`Error::HubFetch`] if it
    /// does not give a file. For a folder there are none: reading it tells what it lacks.
    pub fn fetch(&self) -> Result<PathBuf> {
        self.fetch_with(Access::Hub)
    }

    /// As [`fetch`](Self::fetch), once on each machine: the main process of a machine goes first,
    /// and the others take from the cache what it has fetched.
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch), and as [`PartialState::local_main_process_first`].
    pub fn fetch_together(&self, state: &PartialState) -> Result<PathBuf> {
        let turn = state.local_main_process_first()?;
        let folder = self.fetch_with(if state.is_local_main_process() {
            Access::Hub
        } else {
            Access::AfterMainProcess
        })?;
        turn.end()?;
        Ok(folder)
    }

    fn fetch_with(&self, access: Access) -> Result<PathBuf> {
        match self {
            Self::Folder(folder) => Ok(folder.clone()),
            Self::Hub(id) => fetch(id, access),
        }
    }
}

#[cfg(feature = "hub")]
fn fetch(id: &HubId, access: Access) -> Result<PathBuf> {
    download::Hub::from_environment(id, access)?.model()
}

#[cfg(not(feature = "hub"))]
fn fetch(id: &HubId, _access: Access) -> Result<PathBuf> {
    Err(Error::HubFeature { id: id.clone() })
}

impl FromStr for ModelSource {
    type Err = Error;

    fn from_str(value: &str) -> Result<Self> {
        let folder = match Path::new(value).metadata() {
            Ok(found) if found.is_dir() => return Ok(Self::Folder(value.into())),
            Ok(_) => FolderFault::NotAFolder,
            Err(error) => match error.kind() {
                ErrorKind::NotFound => FolderFault::Absent,
                kind => FolderFault::Unreadable(kind),
            },
        };
        let named = |hub| Error::ModelSource {
            value: value.to_owned(),
            folder,
            hub,
        };
        Ok(Self::Hub(value.parse().map_err(named)?))
    }
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            Self::Hub(id) => id.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_exists_is_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let source: ModelSource = folder.path().to_str().unwrap().parse().unwrap();
        assert_eq!(source, ModelSource::Folder(folder.path().to_owned()));
        assert_eq!(source.fetch().unwrap(), folder.path());
    }

    #[test]
    fn what_is_no_folder_is_an_id() {
        let source: ModelSource = "no-such-owner/no-such-model@v1".parse().unwrap();
        let ModelSource::Hub(id) = &source else {
            panic!("{source:?}")
        };
        assert_eq!(id.revision(), "v1");
        assert_eq!(source.to_string(), "no-such-owner/no-such-model@v1");
    }

    #[test]
    fn what_is_neither_is_told_with_both_readings() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("bert");
        let error = absent.to_str().unwrap().parse::<ModelSource>().unwrap_err();
        let text = error.to_string();
        assert!(text.contains("as a folder, it does not exist"), "{text}");
        assert!(text.contains("as a hub id, it has"), "{text}");

        std::fs::write(&absent, "").unwrap();
        let error = absent.to_str().unwrap().parse::<ModelSource>().unwrap_err();
        let file = FolderFault::NotAFolder;
        assert!(matches!(&error, Error::ModelSource { folder, .. } if *folder == file));
    }

    #[cfg(not(feature = "hub"))]
    #[test]
    fn without_the_feature_an_id_names_the_way_to_build() {
        let source: ModelSource = "no-such-owner/no-such-model".parse().unwrap();
        let text = source.fetch().unwrap_err().to_string();
        assert!(text.contains("`no-such-owner/no-such-model`"), "{text}");
        assert!(text.contains("no folder here"), "{text}");
        assert!(
            text.contains("cargo build -p accelerate-examples --features hub"),
            "{text}"
        );
    }
}
