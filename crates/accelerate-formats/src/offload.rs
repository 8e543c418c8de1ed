//! Folders of offloaded weights: a file of plain numbers for each weight, and `index.json`.
//!
//! The original keeps weights there that have no place in memory. A weight may also stay in the
//! safetensors file it came from; the index then says which.
//!
//! # Source
//! `accelerate.utils.offload`. Differs: weights of 8-bit floats, which the original refuses, are
//! stored as their bytes under PyTorch's name of the type; the index is flushed and renamed into
//! place, and weights are too.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::atomic_file::AtomicFile;
use crate::dtype::Dtype;
use crate::error::{Error, OffloadFault, Result};
use crate::index::is_plain_name;
use crate::mmap::{MappedBytes, MappedFile};
use crate::safetensors::{SafetensorsFile, nearest};
use crate::tensor::{Storage, StoredTensor};

/// The index of a folder.
pub const INDEX_FILE: &str = "index.json";
/// The longest index read.
const MAX_INDEX_BYTES: usize = 100_000_000;

/// What the index says about a weight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum OffloadEntry {
    /// It lies in a safetensors file.
    #[non_exhaustive]
    InSafetensors {
        /// The file.
        safetensors_file: PathBuf,
        /// Its name there; the name of the weight where it is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight_name: Option<String>,
        /// The type it is to become, if another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dtype: Option<String>,
    },
    /// It lies in a file of its own in the folder.
    #[non_exhaustive]
    InFolder {
        /// The type.
        dtype: String,
        /// The shape; empty for a single value.
        shape: Vec<usize>,
    },
}

impl OffloadEntry {
    /// An entry for a weight that stays in a safetensors file.
    pub fn in_safetensors(
        file: impl Into<PathBuf>,
        name: impl Into<String>,
        cast_to: Option<Dtype>,
    ) -> Self {
        Self::InSafetensors {
            safetensors_file: file.into(),
            weight_name: Some(name.into()),
            dtype: cast_to.and_then(Dtype::torch_name).map(str::to_owned),
        }
    }
}

/// A folder of offloaded weights, its index read.
///
/// Weights are mapped when they are asked for.
#[derive(Debug)]
pub struct OffloadFolder {
    folder: PathBuf,
    entries: IndexMap<String, OffloadEntry>,
}

/// A weight of a folder.
#[derive(Debug, Clone)]
pub struct OffloadedWeight {
    /// The tensor as it lies on disk.
    pub tensor: StoredTensor,
    /// The type it is to become, if another.
    pub cast_to: Option<Dtype>,
}

impl OffloadFolder {
    /// Reads the index of a folder.
    ///
    /// # Errors
    /// [`Error::Open`] if there is none, [`Error::Offload`] if it is no index.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let file = MappedFile::open(folder.join(INDEX_FILE))?;
        if file.len() > MAX_INDEX_BYTES {
            return Err(refused(
                folder,
                OffloadFault::TooLong {
                    found_bytes: file.len(),
                    limit_bytes: MAX_INDEX_BYTES,
                },
            ));
        }
        let entries = serde_json::from_slice(&file)
            .map_err(|source| refused(folder, OffloadFault::NotAnIndex { source }))?;
        Ok(Self {
            folder: folder.to_owned(),
            entries,
        })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// The names of all weights and what the index says about them, in its order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&str, &OffloadEntry)> {
        self.entries
            .iter()
            .map(|(name, entry)| (name.as_str(), entry))
    }

    /// The weight of this name, mapped.
    ///
    /// # Errors
    /// [`Error::TensorNotFound`] if the index does not have it, [`Error::Offload`] if its file does
    /// not fit the index, and the errors of [`SafetensorsFile::open`].
    pub fn get(&self, name: &str) -> Result<OffloadedWeight> {
        match self.entries.get(name) {
            Some(OffloadEntry::InFolder { dtype, shape }) => Ok(OffloadedWeight {
                tensor: self.in_folder(name, dtype, shape)?,
                cast_to: None,
            }),
            Some(OffloadEntry::InSafetensors {
                safetensors_file,
                weight_name,
                dtype,
            }) => {
                let cast_to = dtype
                    .as_deref()
                    .map(|dtype| self.dtype(name, dtype))
                    .transpose()?;
                let file = SafetensorsFile::open(self.folder.join(safetensors_file))?;
                let tensor = file
                    .tensor(weight_name.as_deref().unwrap_or(name))?
                    .to_stored();
                Ok(OffloadedWeight { tensor, cast_to })
            }
            None => Err(Error::TensorNotFound {
                path: self.folder.join(INDEX_FILE),
                tensor: name.to_owned(),
                nearest: nearest(self.entries.keys().map(String::as_str), name),
            }),
        }
    }

    fn dtype(&self, weight: &str, name: &str) -> Result<Dtype> {
        Dtype::from_torch_name(name).ok_or_else(|| {
            refused(
                &self.folder,
                OffloadFault::UnknownDtype {
                    weight: weight.to_owned(),
                    found: name.to_owned(),
                },
            )
        })
    }

    fn in_folder(&self, name: &str, dtype: &str, shape: &[usize]) -> Result<StoredTensor> {
        let dtype = self.dtype(name, dtype)?;
        let path = file_of(&self.folder, name)?;
        let file = MappedFile::open(&path)?;
        let expected_bytes = dtype.bits_of(shape).map_or(usize::MAX, |bits| bits / 8);
        // numpy cannot map an empty file, so that a weight without elements has one of one byte.
        let fits = file.len() == expected_bytes || expected_bytes == 0;
        let bytes = MappedBytes::whole(file);
        let found_bytes = bytes.len();
        match bytes.slice(0..expected_bytes) {
            Some(bytes) if fits => {
                let storage = Arc::new(Storage::of_mapped(bytes, false));
                StoredTensor::contiguous(dtype, shape, storage).map_err(|source| {
                    refused(
                        &self.folder,
                        OffloadFault::Layout {
                            weight: name.to_owned(),
                            source,
                        },
                    )
                })
            }
            _ => Err(refused(
                &self.folder,
                OffloadFault::WrongSize {
                    weight: name.to_owned(),
                    expected_bytes,
                    found_bytes,
                },
            )),
        }
    }
}

fn refused(folder: &Path, fault: OffloadFault) -> Error {
    Error::Offload {
        folder: folder.to_owned(),
        fault: Box::new(fault),
    }
}

fn file_of(folder: &Path, weight: &str) -> Result<PathBuf> {
    let name = format!("{weight}.dat");
    if !is_plain_name(&name) {
        return Err(refused(
            folder,
            OffloadFault::Name {
                weight: weight.to_owned(),
            },
        ));
    }
    Ok(folder.join(name))
}

/// Writes weights into a folder, and at the end the index.
///
/// What the index has already stays in it, as long as the weight is not written again.
#[derive(Debug)]
pub struct OffloadWriter {
    folder: PathBuf,
    added: IndexMap<String, OffloadEntry>,
}

impl OffloadWriter {
    /// Begins to write into a folder, which is made where it is absent.
    ///
    /// # Errors
    /// [`Error::Write`] if it cannot be made.
    pub fn create(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        std::fs::create_dir_all(folder).map_err(|source| Error::Write {
            path: folder.to_owned(),
            source,
        })?;
        Ok(Self {
            folder: folder.to_owned(),
            added: IndexMap::new(),
        })
    }

    /// Writes a weight: contiguous, row-major, little-endian.
    ///
    /// # Errors
    /// [`Error::Offload`] if the name can be no file name, the type is not a whole number of bytes,
    /// or `bytes` has another length; [`Error::Write`] if the system fails.
    pub fn write(&mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Result<()> {
        let path = file_of(&self.folder, name)?;
        let weight = || name.to_owned();
        let text = dtype.torch_name();
        let text = text.ok_or_else(|| {
            refused(
                &self.folder,
                OffloadFault::Dtype {
                    weight: weight(),
                    dtype,
                },
            )
        })?;
        let expected_bytes = dtype.bits_of(shape).map_or(usize::MAX, |bits| bits / 8);
        if expected_bytes != bytes.len() {
            return Err(refused(
                &self.folder,
                OffloadFault::WrongSize {
                    weight: weight(),
                    expected_bytes,
                    found_bytes: bytes.len(),
                },
            ));
        }
        let mut file = AtomicFile::create(&path)?;
        let written = file.write_all(if bytes.is_empty() { &[0] } else { bytes });
        written.map_err(|source| Error::Write { path, source })?;
        // Offloaded weights need not outlive the machine, only this process.
        file.commit_unflushed()?;
        self.added.insert(
            weight(),
            OffloadEntry::InFolder {
                dtype: text.to_owned(),
                shape: shape.to_vec(),
            },
        );
        Ok(())
    }

    /// Adds a weight that stays where it is.
    pub fn refer(&mut self, name: impl Into<String>, entry: OffloadEntry) {
        self.added.insert(name.into(), entry);
    }

    /// Writes the index. Without any weight nothing is written, as the original has it.
    ///
    /// # Errors
    /// [`Error::Offload`] if there is an index that cannot be read, else as [`AtomicFile`].
    pub fn finish(self) -> Result<()> {
        if self.added.is_empty() {
            return Ok(());
        }
        let path = self.folder.join(INDEX_FILE);
        let mut entries = if path.exists() {
            OffloadFolder::open(&self.folder)?.entries
        } else {
            IndexMap::new()
        };
        entries.extend(self.added);
        let mut file = AtomicFile::create(&path)?;
        let written = serde_json::to_writer_pretty(&mut file, &entries);
        written.map_err(|source| Error::Write {
            path,
            source: source.into(),
        })?;
        file.commit()
    }
}
