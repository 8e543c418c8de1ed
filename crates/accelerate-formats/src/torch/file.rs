//! A file of `torch.save`, in either format.

use std::path::{Path, PathBuf};

use super::archive::{Archive, ArchiveStorages};
use super::decode::{Decoder, Strangers};
use super::legacy;
use crate::error::{Error, Result, TorchFault};
use crate::mmap::{MappedBytes, MappedFile};
use crate::pickle;
use crate::tensor::StoredTensor;
use crate::value::{Dict, Value};

/// What the first bytes of a zip archive are.
const ZIP: &[u8] = b"PK\x03\x04";
/// What the first bytes of a git-lfs pointer are.
const GIT_LFS: &[u8] = b"version https://git-lfs";
/// What stands at byte 257 of a tar archive.
const TAR: &[u8] = b"ustar";

/// The format of a file of `torch.save`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TorchFormat {
    /// The zip archive of PyTorch 1.6 and later.
    Zip,
    /// The format before it.
    Legacy,
}

/// The format that the first bytes of a file speak for.
pub(crate) fn sniff(bytes: &[u8]) -> Option<TorchFormat> {
    if bytes.starts_with(ZIP) {
        Some(TorchFormat::Zip)
    } else if bytes.starts_with(legacy::MAGIC) {
        Some(TorchFormat::Legacy)
    } else {
        None
    }
}

/// Reads the value of a whole file, or of a part of one that is a file of its own.
pub(crate) fn read_value(bytes: &MappedBytes, strangers: Strangers) -> Result<Value, TorchFault> {
    match sniff(bytes) {
        Some(TorchFormat::Zip) => {
            let archive = Archive::open(bytes)?;
            let text = archive.pickle()?;
            let allow = |module: &str, name: &str| strangers.allow(module, name);
            let (graph, _) = pickle::read(&text, &allow)?;
            let mut storages = ArchiveStorages::new(&archive);
            Decoder::new(&graph, &mut storages, strangers).root()
        }
        Some(TorchFormat::Legacy) => legacy::read(bytes, strangers),
        None if bytes.starts_with(GIT_LFS) => Err(TorchFault::GitLfsPointer),
        None if bytes.get(257..).is_some_and(|rest| rest.starts_with(TAR)) => Err(TorchFault::Tar),
        None => Err(TorchFault::NotTorch),
    }
}

/// A file of `torch.save`, mapped into memory and understood in full.
///
/// ```
/// use accelerate_formats::{Dict, TorchFile, write_torch_file};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("scheduler.bin");
/// write_torch_file(&path, &Dict::new().with("last_epoch", 3).with("lr", 0.1).into())?;
/// let state = TorchFile::open(&path)?.into_value();
/// assert_eq!(state.get("last_epoch").and_then(|epoch| epoch.as_int()), Some(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TorchFile {
    path: PathBuf,
    format: TorchFormat,
    value: Value,
}

impl TorchFile {
    /// Maps the file at `path` and reads everything but the data of its tensors.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::NotAFile`] or [`Error::Map`] if there is no file to map,
    /// [`Error::Torch`] with the fault if it is damaged, or holds something other than tensors and
    /// plain values.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let file = MappedFile::open(path)?;
        let path = file.path().to_owned();
        let bytes = MappedBytes::whole(file);
        match read_value(&bytes, Strangers::Refused) {
            Ok(value) => Ok(Self {
                path,
                format: sniff(&bytes).unwrap_or(TorchFormat::Zip),
                value,
            }),
            Err(fault) => Err(Error::Torch {
                path,
                fault: Box::new(fault),
            }),
        }
    }

    /// Where the file was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its format.
    pub fn format(&self) -> TorchFormat {
        self.format
    }

    /// What was saved.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// What was saved, to keep. Its tensors keep the file mapped.
    pub fn into_value(self) -> Value {
        self.value
    }

    /// The tensors of a state dict: a dict whose keys are text and whose values are tensors.
    ///
    /// # Errors
    /// [`Error::Torch`] if the file holds something else; where the weights seem to lie deeper, it
    /// says under which keys.
    pub fn into_state_dict(self) -> Result<Vec<(String, StoredTensor)>> {
        let Self { path, value, .. } = self;
        state_dict(value).map_err(|fault| Error::Torch {
            path,
            fault: Box::new(fault),
        })
    }
}

impl TorchFile {
    /// The tensors of the state dict that lies under a key, or under several joined by dots.
    ///
    /// # Errors
    /// [`Error::NoPart`] with the keys that have a dict if there is none, else as
    /// [`into_state_dict`](Self::into_state_dict).
    pub fn into_part(self, part: &str) -> Result<Vec<(String, StoredTensor)>> {
        let Self { path, value, .. } = self;
        let Some(found) = find_part(&value, part) else {
            let dict = value.as_dict().into_iter().flat_map(Dict::iter);
            let found = dict
                .filter(|(_, value)| value.as_dict().is_some())
                .filter_map(|(key, _)| key.as_str().map(str::to_owned));
            return Err(Error::NoPart {
                found: found.collect(),
                part: part.to_owned(),
                path,
            });
        };
        state_dict(found.clone()).map_err(|fault| Error::Torch {
            path,
            fault: Box::new(fault),
        })
    }
}

fn find_part<'v>(value: &'v Value, part: &str) -> Option<&'v Value> {
    if let Some(found) = value.get(part) {
        return Some(found);
    }
    let dots = part.match_indices('.');
    dots.into_iter().find_map(|(dot, _)| {
        let (first, rest) = (part.get(..dot)?, part.get(dot + 1..)?);
        find_part(value.get(first)?, rest)
    })
}

fn state_dict(value: Value) -> Result<Vec<(String, StoredTensor)>, TorchFault> {
    let Value::Dict(dict) = value else {
        return Err(TorchFault::NotAStateDict {
            found: value.kind().to_owned(),
            nested: Vec::new(),
        });
    };
    let nested: Vec<String> = dict
        .iter()
        .filter(|(_, value)| holds_tensors(value))
        .filter_map(|(key, _)| key.as_str().map(str::to_owned))
        .collect();
    let tensors = dict.into_iter().map(|(key, value)| match (key, value) {
        (Value::Str(name), Value::Tensor(tensor)) => Ok((name, *tensor)),
        (Value::Str(name), other) => Err(TorchFault::NotAStateDict {
            found: format!("{} under `{name}`", other.kind()),
            nested: nested.clone(),
        }),
        (other, _) => Err(TorchFault::NotAStateDict {
            found: format!("{} as a key", other.kind()),
            nested: nested.clone(),
        }),
    });
    tensors.collect()
}

fn holds_tensors(value: &Value) -> bool {
    value.as_dict().is_some_and(|dict| {
        !dict.is_empty()
            && dict
                .iter()
                .all(|(_, value)| matches!(value, Value::Tensor(_)))
    })
}
