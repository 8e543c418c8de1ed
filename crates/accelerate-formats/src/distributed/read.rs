//! Reading: any box of any tensor, from the parts that hold it.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::DESCRIPTION_FILE;
use super::description::{self, Chunk, Description, PathPart, Place, ShardedTensor};
use crate::error::{DistributedFault, Error, Result};
use crate::mmap::{MappedBytes, MappedFile};
use crate::safetensors::nearest;
use crate::strided::{self, Layout};
use crate::tensor::{Storage, StoredTensor, reserve};
use crate::torch::{Strangers, read_value};
use crate::value::{Dict, Value};

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
        let rows = strided::row_major(sizes).unwrap_or_default();
        let elements: usize = sizes.iter().product();
        let bytes = elements * (tensor.dtype.size_in_bits() / 8);
        out.clear();
        reserve(out, bytes)?;
        out.resize(bytes, 0);
        let wanted = Box { offsets, sizes };
        let parts: Vec<(&Chunk, Overlap)> = tensor
            .chunks
            .iter()
            .filter_map(|chunk| Some((chunk, wanted.overlap(chunk)?)))
            .collect();
        self.check_cover(tensor, elements, &parts)?;
        for (chunk, overlap) in &parts {
            let part = self.chunk(tensor, chunk)?;
            let begin = overlap.within_wanted(&wanted);
            let layout = Layout {
                offset: begin
                    .iter()
                    .zip(&rows)
                    .map(|(index, step)| index * step)
                    .sum(),
                strides: &rows,
            };
            let within = overlap.within_part(chunk);
            let copied = part.read_box((&within, &overlap.sizes), out, layout)?;
            if copied.is_none() {
                return Err(self.refused(outside()));
            }
        }
        Ok(())
    }

    fn check_cover(
        &self,
        tensor: &ShardedTensor,
        expected: usize,
        parts: &[(&Chunk, Overlap)],
    ) -> Result<()> {
        let name = || tensor.name.clone();
        let collides = parts.iter().enumerate().any(|(place, (chunk, _))| {
            let mut others = parts.iter().skip(place + 1);
            let one = Box {
                offsets: &chunk.offsets,
                sizes: &chunk.sizes,
            };
            others.any(|(other, _)| one.overlap(other).is_some())
        });
        if collides {
            return Err(self.refused(DistributedFault::Overlap { tensor: name() }));
        }
        let found: usize = parts
            .iter()
            .map(|(_, overlap)| overlap.sizes.iter().product::<usize>())
            .sum();
        if found != expected {
            return Err(self.refused(DistributedFault::Gap {
                tensor: name(),
                expected,
                found,
            }));
        }
        Ok(())
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
        let bytes = bytes.ok_or_else(|| {
            self.refused(DistributedFault::PastEnd {
                name: name.to_owned(),
                file: place.file.clone(),
                offset: place.offset,
                length: place.length,
                file_bytes,
            })
        })?;
        read_value(&bytes, Strangers::Refused).map_err(|source| {
            self.refused(DistributedFault::Part {
                name: name.to_owned(),
                file: place.file.clone(),
                source: source.into(),
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

    /// Everything in it as one nested value, tensors read into memory: what `torch.save` would have
    /// been given. Names without a known path stay flat.
    ///
    /// # Errors
    /// As [`read_box`](Self::read_box) and [`value`](Self::value).
    pub fn to_value(&self) -> Result<Value> {
        let mut root = Branch::default();
        for tensor in self.tensors() {
            let mut bytes = Vec::new();
            self.read_into(&tensor.name, &mut bytes)?;
            let storage = Arc::new(Storage::new(bytes));
            let value = StoredTensor::in_rows(tensor.dtype, tensor.shape.clone(), storage);
            self.plant(&mut root, &tensor.name, value.into())?;
        }
        for name in self.value_names() {
            self.plant(&mut root, name, self.value(name)?)?;
        }
        Ok(root.into_value())
    }

    fn plant(&self, root: &mut Branch, name: &str, value: Value) -> Result<()> {
        let flat = [PathPart::Key(name.to_owned())];
        let path = self
            .path_of(name)
            .filter(|path| !path.is_empty())
            .unwrap_or(&flat);
        root.plant(path, value).map_err(|()| {
            self.refused(DistributedFault::Nesting {
                name: name.to_owned(),
            })
        })
    }

    fn refused(&self, fault: DistributedFault) -> Error {
        refused(&self.folder, fault)
    }
}

fn refused(folder: &Path, fault: DistributedFault) -> Error {
    Error::Distributed {
        folder: folder.to_owned(),
        fault: std::boxed::Box::new(fault),
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

/// A box of a tensor.
struct Box<'a> {
    offsets: &'a [usize],
    sizes: &'a [usize],
}

/// What two boxes have in common.
#[derive(Debug)]
struct Overlap {
    begin: Vec<usize>,
    sizes: Vec<usize>,
}

impl Box<'_> {
    fn overlap(&self, chunk: &Chunk) -> Option<Overlap> {
        let mut overlap = Overlap {
            begin: Vec::with_capacity(self.sizes.len()),
            sizes: Vec::with_capacity(self.sizes.len()),
        };
        let ours = self.offsets.iter().zip(self.sizes);
        let theirs = chunk.offsets.iter().zip(&chunk.sizes);
        for ((&offset, &size), (&other, &length)) in ours.zip(theirs) {
            let begin = offset.max(other);
            let end = (offset + size).min(other + length);
            overlap.begin.push(begin);
            overlap
                .sizes
                .push(end.checked_sub(begin).filter(|&size| size > 0)?);
        }
        Some(overlap)
    }
}

impl Overlap {
    fn within_wanted(&self, wanted: &Box<'_>) -> Vec<usize> {
        self.begin
            .iter()
            .zip(wanted.offsets)
            .map(|(begin, offset)| begin - offset)
            .collect()
    }

    fn within_part(&self, chunk: &Chunk) -> Vec<usize> {
        self.begin
            .iter()
            .zip(&chunk.offsets)
            .map(|(begin, offset)| begin - offset)
            .collect()
    }
}

/// A dict or list that is put together again.
#[derive(Debug, Default)]
struct Branch {
    keys: Vec<(String, Twig)>,
    places: BTreeMap<usize, Twig>,
}

#[derive(Debug)]
enum Twig {
    Leaf(Value),
    Branch(Branch),
}

impl Branch {
    fn plant(&mut self, path: &[PathPart], value: Value) -> Result<(), ()> {
        let (first, rest) = path.split_first().ok_or(())?;
        let twig = self.twig(first);
        match (twig, rest) {
            (Some(Twig::Branch(branch)), [_, ..]) => branch.plant(rest, value),
            (Some(_), _) => Err(()),
            (None, []) => {
                self.add(first, Twig::Leaf(value));
                Ok(())
            }
            (None, _) => {
                let mut branch = Self::default();
                branch.plant(rest, value)?;
                self.add(first, Twig::Branch(branch));
                Ok(())
            }
        }
    }

    fn twig(&mut self, part: &PathPart) -> Option<&mut Twig> {
        match part {
            PathPart::Key(key) => {
                let mut keys = self.keys.iter_mut();
                keys.find(|(known, _)| known == key).map(|(_, twig)| twig)
            }
            PathPart::Index(index) => self.places.get_mut(index),
        }
    }

    fn add(&mut self, part: &PathPart, twig: Twig) {
        match part {
            PathPart::Key(key) => self.keys.push((key.clone(), twig)),
            PathPart::Index(index) => {
                self.places.insert(*index, twig);
            }
        }
    }

    fn into_value(self) -> Value {
        let value = |twig| match twig {
            Twig::Leaf(value) => value,
            Twig::Branch(branch) => branch.into_value(),
        };
        if self.keys.is_empty() && !self.places.is_empty() {
            return Value::List(self.places.into_values().map(value).collect());
        }
        // Optimizer states have numbers as keys.
        let numbers = self
            .places
            .into_iter()
            .map(|(index, twig)| (Value::from(index as u64), value(twig)));
        let keys = self
            .keys
            .into_iter()
            .map(|(key, twig)| (Value::from(key), value(twig)));
        Value::Dict(numbers.chain(keys).collect::<Dict>())
    }
}
