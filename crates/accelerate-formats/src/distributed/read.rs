//! Reading: any box of any tensor, from the parts that hold it.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::DESCRIPTION_FILE;
use super::description::{self, Chunk, Description, PathPart, Place, ShardedTensor};
use crate::boxes::{self, Part, Span};
use crate::error::{DistributedFault, Error, Result};
use crate::mmap::{MappedBytes, MappedFile};
use crate::safetensors::nearest;
use crate::tensor::{Pieces, StoredTensor, reserve};
use crate::torch::{Strangers, read_value};
use crate::value::Value;

/// A folder of `torch.distributed.checkpoint`, its description read and checked.
///
/// The files of the ranks are mapped when they are first needed, and stay so.
#[derive(Debug)]
pub struct DistributedCheckpoint {
    folder: PathBuf,
    description: Description,
    files: Mutex<HashMap<String, Arc<MappedFile>>>,
}

impl DistributedCheckpoint {
    /// Reads the description of a folder.
    ///
    /// # Errors
    /// [`Error::Distributed`] if there is none, saying which folders inside have one, or if it is
    /// damaged: parts outside their tensor, tensors that are not whole, files outside the folder.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let path = folder.join(DESCRIPTION_FILE);
        if !path.exists() && folder.is_dir() {
            let fault = DistributedFault::NoMetadata {
                inner: folders_with_description(folder),
            };
            return Err(refused(folder, fault));
        }
        let file = MappedFile::open(&path)?;
        let description = description::parse(&file).map_err(|fault| refused(folder, fault))?;
        Ok(Self {
            folder: folder.to_owned(),
            description,
            files: Mutex::default(),
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// All tensors, sorted by name.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &ShardedTensor> {
        self.description.tensors.values()
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`Error::TensorNotFound`], with a name that differs only by a prefix where there is one.
    pub fn tensor(&self, name: &str) -> Result<&ShardedTensor> {
        self.description.tensors.get(name).ok_or_else(|| {
            let names = self.description.tensors.keys();
            Error::TensorNotFound {
                path: self.folder.clone(),
                tensor: name.to_owned(),
                nearest: nearest(names.map(String::as_str), name),
            }
        })
    }

    /// The names of all values that are no tensors, sorted.
    pub fn value_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.description.values.keys().map(String::as_str)
    }

    /// A value that is no tensor.
    ///
    /// # Errors
    /// [`Error::TensorNotFound`] if there is none of this name, [`Error::Distributed`] if it is
    /// damaged or holds more than plain values.
    pub fn value(&self, name: &str) -> Result<Value> {
        let place = self.description.values.get(name);
        let place = place.ok_or_else(|| Error::TensorNotFound {
            path: self.folder.clone(),
            tensor: name.to_owned(),
            nearest: nearest(self.value_names(), name),
        })?;
        self.part(name, place)
    }

    /// Where the thing of this name was before all names were made flat.
    pub fn path_of(&self, name: &str) -> Option<&[PathPart]> {
        self.description.paths.get(name).map(Vec::as_slice)
    }

    /// Puts a whole tensor in row-major order into `out`, in place of what it held.
    ///
    /// # Errors
    /// As [`read_box`](Self::read_box).
    pub fn read_into(&self, name: &str, out: &mut Vec<u8>) -> Result<()> {
        let tensor = self.tensor(name)?;
        self.read_box(name, &vec![0; tensor.shape.len()], &tensor.shape, out)
    }

    /// Puts the box of a tensor that begins at `offsets` and has the lengths `sizes` into `out`, in
    /// row-major order and in place of what it held. Only the parts that overlap it are touched.
    ///
    /// # Errors
    /// [`Error::TensorNotFound`], [`Error::Distributed`] if the box leaves the tensor or a part is
    /// missing or damaged, [`Error::OutOfMemory`].
    pub fn read_box(
        &self,
        name: &str,
        offsets: &[usize],
        sizes: &[usize],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let tensor = self.tensor(name)?;
        let outside = || DistributedFault::ChunkOutside {
            tensor: name.to_owned(),
            shape: tensor.shape.clone(),
            offsets: offsets.to_vec(),
            sizes: sizes.to_vec(),
        };
        if !description::fits(offsets, sizes, &tensor.shape) {
            return Err(self.refused(outside()));
        }
        let wanted = Span { offsets, sizes };
        let bytes = wanted.elements() * (tensor.dtype.size_in_bits() / 8);
        out.clear();
        reserve(out, bytes)?;
        out.resize(bytes, 0);
        let parts = self.parts(tensor, &wanted)?;
        boxes::gather(&wanted, &parts, out)?.ok_or_else(|| self.refused(outside()))
    }

    /// The data of a whole tensor in row-major order, piece after piece: what lies so is handed out
    /// where it is mapped, the rest is put together a few rows at a time.
    ///
    /// # Errors
    /// As [`read_box`](Self::read_box).
    pub fn pieces(&self, name: &str) -> Result<Pieces<'_>> {
        let tensor = self.tensor(name)?;
        let whole = Span {
            offsets: &vec![0; tensor.shape.len()],
            sizes: &tensor.shape,
        };
        let parts = self.parts(tensor, &whole)?;
        let pieces = boxes::pieces(tensor.dtype, &tensor.shape, parts);
        Ok(Box::new(pieces))
    }

    /// The parts that hold a box, which they cover without overlap.
    fn parts(&self, tensor: &ShardedTensor, wanted: &Span<'_>) -> Result<Vec<Part>> {
        let chunks: Vec<&Chunk> = tensor
            .chunks
            .iter()
            .filter(|chunk| wanted.overlaps(&chunk.span()))
            .collect();
        let name = || tensor.name.clone();
        if boxes::collide(chunks.iter().map(|chunk| chunk.span()).collect()) {
            return Err(self.refused(DistributedFault::Overlap { tensor: name() }));
        }
        let overlaps = chunks
            .iter()
            .filter_map(|chunk| wanted.overlap(&chunk.span()));
        let found = overlaps.map(|overlap| overlap.sizes.iter().product::<usize>());
        let (expected, found) = (wanted.elements(), found.sum());
        if found != expected {
            return Err(self.refused(DistributedFault::Gap {
                tensor: name(),
                expected,
                found,
            }));
        }
        let parts = chunks.into_iter().map(|chunk| {
            Ok(Part {
                offsets: chunk.offsets.clone(),
                tensor: self.chunk(tensor, chunk)?,
            })
        });
        parts.collect()
    }

    /// Checks that every file that the description names is there, and long enough.
    ///
    /// # Errors
    /// [`Error::Distributed`] with all files that are missing, or the first that is too short.
    pub fn check_files(&self) -> Result<()> {
        let chunks = self.tensors().flat_map(|tensor| {
            let chunks = tensor.chunks.iter();
            chunks.map(|chunk| (tensor.name.as_str(), &chunk.place))
        });
        let values = self.description.values.iter();
        let places: Vec<(&str, &Place)> = chunks
            .chain(values.map(|(name, place)| (name.as_str(), place)))
            .collect();
        let files: BTreeSet<&str> = places
            .iter()
            .map(|(_, place)| place.file.as_str())
            .collect();
        let is_missing = |file: &&&str| !self.folder.join(file).exists();
        let missing: Vec<String> = files
            .iter()
            .filter(is_missing)
            .map(|&file| file.to_owned())
            .collect();
        if !missing.is_empty() {
            return Err(self.refused(DistributedFault::FilesMissing {
                files: missing,
                expected: files.len(),
            }));
        }
        places
            .iter()
            .try_for_each(|(name, place)| self.stream(name, place).map(drop))
    }

    /// The first key of everything in it, where that is one and the same.
    pub(crate) fn only_key(&self) -> Option<&str> {
        let names = self.tensors().map(|tensor| tensor.name());
        let mut keys = names
            .chain(self.value_names())
            .map(|name| match self.path_of(name) {
                Some([PathPart::Key(key), _, ..]) => Some(key.as_str()),
                _ => None,
            });
        let first = keys.next()??;
        keys.all(|key| key == Some(first)).then_some(first)
    }

    /// One part of a tensor, still in its file.
    fn chunk(&self, tensor: &ShardedTensor, chunk: &Chunk) -> Result<StoredTensor> {
        let found = self.part(&tensor.name, &chunk.place)?;
        match found {
            Value::Tensor(found)
                if found.dtype() == tensor.dtype
                    && found.shape() == chunk.sizes
                    && !found.swaps() =>
            {
                Ok(*found)
            }
            other => {
                let found = other.as_tensor().map_or_else(
                    || other.kind().to_owned(),
                    |found| format!("`{}` {:?}", found.dtype(), found.shape()),
                );
                Err(self.refused(DistributedFault::WrongPart {
                    tensor: tensor.name.clone(),
                    file: chunk.place.file.clone(),
                    dtype: tensor.dtype,
                    sizes: chunk.sizes.clone(),
                    found,
                }))
            }
        }
    }

    fn part(&self, name: &str, place: &Place) -> Result<Value> {
        let bytes = self.stream(name, place)?;
        read_value(&bytes, Strangers::Refused).map_err(|source| {
            self.refused(DistributedFault::Part {
                name: name.to_owned(),
                file: place.file.clone(),
                source: source.into(),
            })
        })
    }

    /// Where a tensor or value lies, still packed as it was written.
    fn stream(&self, name: &str, place: &Place) -> Result<MappedBytes> {
        let file = self.file(&place.file)?;
        let file_bytes = file.len();
        let begin = usize::try_from(place.offset).ok();
        let end = place
            .offset
            .checked_add(place.length)
            .and_then(|end| usize::try_from(end).ok());
        let bytes = begin
            .zip(end)
            .and_then(|(begin, end)| MappedBytes::new(file, begin..end));
        bytes.ok_or_else(|| {
            self.refused(DistributedFault::PastEnd {
                name: name.to_owned(),
                file: place.file.clone(),
                offset: place.offset,
                length: place.length,
                file_bytes,
            })
        })
    }

    fn file(&self, name: &str) -> Result<Arc<MappedFile>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(name) {
            return Ok(Arc::clone(file));
        }
        let file = MappedFile::open(self.folder.join(name))?;
        files.insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    pub(super) fn refused(&self, fault: DistributedFault) -> Error {
        refused(&self.folder, fault)
    }
}

fn refused(folder: &Path, fault: DistributedFault) -> Error {
    Error::Distributed {
        folder: folder.to_owned(),
        fault: Box::new(fault),
    }
}

fn folders_with_description(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().join(DESCRIPTION_FILE).exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    names
}
