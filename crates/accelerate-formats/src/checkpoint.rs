//! What kind of checkpoint a path holds, and any kind behind one interface.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::distributed::{DESCRIPTION_FILE, DistributedCheckpoint};
use crate::error::{Error, Result};
use crate::mmap::MappedFile;
use crate::offload;
use crate::source::{DistributedPart, TensorSource};
use crate::weights::{Weights, find_in, has_extension, is_torch};
use crate::zero::{ZeroCheckpoint, is_zero};

/// The kinds of checkpoint that are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CheckpointKind {
    /// One safetensors file.
    Safetensors,
    /// One file of `torch.save`.
    Torch,
    /// An index of weights in several files.
    Index,
    /// A folder of weights, in one file or in several.
    Weights,
    /// A folder of `torch.distributed.checkpoint`.
    Distributed,
    /// A folder of DeepSpeed.
    Zero,
    /// A folder of offloaded weights.
    Offload,
}

impl CheckpointKind {
    /// The kind of what lies at `path`, by its name and first bytes; none if it is not known.
    ///
    /// # Errors
    /// [`Error::Open`] if there is nothing, or it cannot be looked at.
    pub fn of(path: impl AsRef<Path>) -> Result<Option<Self>> {
        let path = path.as_ref();
        let found = std::fs::metadata(path).map_err(|source| Error::Open {
            path: path.to_owned(),
            source,
        })?;
        if found.is_dir() {
            Self::of_folder(path)
        } else {
            Self::of_file(path)
        }
    }

    fn of_file(path: &Path) -> Result<Option<Self>> {
        if has_extension(path, &["safetensors"]) {
            return Ok(Some(Self::Safetensors));
        }
        if has_extension(path, &["json"]) {
            return Ok(path
                .to_string_lossy()
                .ends_with(".index.json")
                .then_some(Self::Index));
        }
        if is_torch(path)? {
            return Ok(Some(Self::Torch));
        }
        let bytes = MappedFile::open(path)?;
        let header = bytes.get(8..).unwrap_or_default();
        Ok(header.starts_with(b"{\"").then_some(Self::Safetensors))
    }

    fn of_folder(path: &Path) -> Result<Option<Self>> {
        if path.join(DESCRIPTION_FILE).exists() {
            return Ok(Some(Self::Distributed));
        }
        if is_zero(path)? {
            return Ok(Some(Self::Zero));
        }
        match find_in(path) {
            Ok(_) | Err(Error::ManyIndexes { .. }) => Ok(Some(Self::Weights)),
            Err(Error::NoWeights { .. }) => {
                let is_offload = path.join(offload::INDEX_FILE).exists();
                Ok(is_offload.then_some(Self::Offload))
            }
            Err(error) => Err(error),
        }
    }

    /// In a few words: `a safetensors file`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "a safetensors file",
            Self::Torch => "a file of `torch.save`",
            Self::Index => "an index of weights",
            Self::Weights => "a folder of weights",
            Self::Distributed => "a distributed checkpoint",
            Self::Zero => "a DeepSpeed checkpoint",
            Self::Offload => "a folder of offloaded weights",
        }
    }
}

impl fmt::Display for CheckpointKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What to open of a checkpoint, where there is a choice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// The folder inside a folder of DeepSpeed, in place of the one that `latest` names.
    pub tag: Option<String>,
    /// The key below which tensors are taken from a torch file or a distributed checkpoint.
    pub part: Option<String>,
}

impl OpenOptions {
    /// The same with a tag.
    #[must_use]
    pub fn with_tag(mut self, tag: Option<String>) -> Self {
        self.tag = tag;
        self
    }

    /// The same with a key.
    #[must_use]
    pub fn with_part(mut self, part: Option<String>) -> Self {
        self.part = part;
        self
    }
}

/// A checkpoint of a kind that tensors can be read from.
#[derive(Debug)]
pub struct Checkpoint {
    kind: CheckpointKind,
    opened: Opened,
    part: Option<String>,
}

#[derive(Debug)]
enum Opened {
    Weights(Weights),
    Distributed(DistributedCheckpoint),
    Zero(ZeroCheckpoint),
}

impl Checkpoint {
    /// Opens what lies at `path`.
    ///
    /// # Errors
    /// [`Error::NoPart`] if a part is asked for of a kind that has none; those of
    /// [`Weights::open`], [`DistributedCheckpoint::open`] and [`ZeroCheckpoint::open`].
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let path = path.as_ref();
        let kind = CheckpointKind::of(path)?;
        let part = options.part.as_deref();
        let opened = match (kind, part) {
            (Some(CheckpointKind::Zero), None) => {
                Opened::Zero(ZeroCheckpoint::open(path, options.tag.as_deref())?)
            }
            (Some(CheckpointKind::Distributed), _) => {
                let checkpoint = DistributedCheckpoint::open(path)?;
                checkpoint.check_files()?;
                Opened::Distributed(checkpoint)
            }
            (Some(CheckpointKind::Torch), Some(part)) => {
                Opened::Weights(Weights::open_part(path, part)?)
            }
            (_, None) => Opened::Weights(Weights::open(path)?),
            (_, Some(part)) => {
                return Err(Error::NoPart {
                    path: path.to_owned(),
                    part: part.to_owned(),
                    found: Vec::new(),
                });
            }
        };
        Ok(Self {
            // What `Weights` opened without its kind being known is a file of some other name.
            kind: kind.unwrap_or(CheckpointKind::Safetensors),
            opened,
            part: options.part.clone(),
        })
    }

    /// Its kind.
    pub fn kind(&self) -> CheckpointKind {
        self.kind
    }

    /// The weights, if it is a file or a folder of them.
    pub fn as_weights(&self) -> Option<&Weights> {
        match &self.opened {
            Opened::Weights(weights) => Some(weights),
            _ => None,
        }
    }

    /// The distributed checkpoint, if it is one.
    pub fn as_distributed(&self) -> Option<&DistributedCheckpoint> {
        match &self.opened {
            Opened::Distributed(checkpoint) => Some(checkpoint),
            _ => None,
        }
    }

    /// The checkpoint of DeepSpeed, if it is one.
    pub fn as_zero(&self) -> Option<&ZeroCheckpoint> {
        match &self.opened {
            Opened::Zero(checkpoint) => Some(checkpoint),
            _ => None,
        }
    }

    /// The files that hold its tensors.
    pub fn files(&self) -> Vec<PathBuf> {
        match &self.opened {
            Opened::Weights(weights) => {
                let files = weights.files().iter();
                files.map(|file| file.path().to_owned()).collect()
            }
            Opened::Distributed(checkpoint) => {
                let chunks = checkpoint.tensors().flat_map(|tensor| tensor.chunks());
                let mut files: Vec<PathBuf> = chunks
                    .map(|chunk| checkpoint.folder().join(chunk.file()))
                    .collect();
                files.sort_unstable();
                files.dedup();
                files
            }
            Opened::Zero(checkpoint) => checkpoint.files().to_vec(),
        }
    }

    /// Its tensors. Of a distributed checkpoint those below the part that was asked for, else below
    /// the only first key where there is only one.
    ///
    /// # Errors
    /// [`Error::NoPart`] if there is nothing below that key.
    pub fn source(&self) -> Result<Box<dyn TensorSource + '_>> {
        Ok(match &self.opened {
            Opened::Weights(weights) => Box::new(weights),
            Opened::Zero(checkpoint) => Box::new(checkpoint),
            Opened::Distributed(checkpoint) => Box::new(match &self.part {
                Some(part) => DistributedPart::named(checkpoint, part)?,
                None => DistributedPart::of(checkpoint),
            }),
        })
    }

    /// The names of everything beside the tensors of [`source`](Self::source) that these leave out.
    ///
    /// # Errors
    /// As [`source`](Self::source).
    pub fn other_values(&self) -> Result<Vec<String>> {
        let Opened::Distributed(checkpoint) = &self.opened else {
            return Ok(Vec::new());
        };
        let part = match &self.part {
            Some(part) => DistributedPart::named(checkpoint, part)?,
            None => DistributedPart::of(checkpoint),
        };
        Ok(part.values().to_vec())
    }
}
