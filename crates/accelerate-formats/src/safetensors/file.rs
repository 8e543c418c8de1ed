//! Reading one file without copying it.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::Metadata;
use super::header::{self, Header, TensorEntry};
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::mmap::{MappedBytes, MappedFile};
use crate::tensor::{Storage, StoredTensor};

/// A safetensors file, mapped into memory, with its header checked in full.
///
/// Opening reads the header only. The data of a tensor comes from disk when it is first touched.
#[derive(Debug)]
pub struct SafetensorsFile {
    file: Arc<MappedFile>,
    tensors: Vec<TensorEntry>,
    by_name: HashMap<String, usize>,
    metadata: Metadata,
}

impl SafetensorsFile {
    /// Maps the file at `path` and checks its header.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::NotAFile`] or [`Error::Map`] if there is no file to map,
    /// [`Error::Header`] with the fault if its content is not sound.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let file = MappedFile::open(path)?;
        let read = header::parse(&file);
        let Header { tensors, metadata } = read.map_err(|fault| Error::Header {
            path: file.path().to_owned(),
            fault,
        })?;
        let by_name = tensors
            .iter()
            .enumerate()
            .map(|(place, tensor)| (tensor.name.clone(), place))
            .collect();
        Ok(Self {
            file,
            tensors,
            by_name,
            metadata,
        })
    }

    /// Where the file was when it was opened.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The text in the header: often `format: pt`.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The names of all tensors, in the order of their data in the file.
    ///
    /// Reading in this order goes through the file once, from front to back.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.iter().map(|tensor| tensor.name.as_str())
    }

    /// All tensors, in the order of their data in the file.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = TensorSlice<'_>> {
        self.tensors.iter().map(|entry| TensorSlice {
            file: &self.file,
            entry,
        })
    }

    /// The tensor of this name.
    ///
    /// # Errors
    /// [`Error::TensorNotFound`], with a name that differs only by a prefix where there is one.
    pub fn tensor(&self, name: &str) -> Result<TensorSlice<'_>> {
        self.find(name).ok_or_else(|| Error::TensorNotFound {
            path: self.path().to_owned(),
            tensor: name.to_owned(),
            nearest: nearest(self.names(), name),
        })
    }

    /// The tensor of this name, if the file has it.
    pub fn find(&self, name: &str) -> Option<TensorSlice<'_>> {
        self.by_name.get(name).and_then(|&place| self.at(place))
    }

    /// The tensor at this place in the order of the data.
    pub(crate) fn at(&self, place: usize) -> Option<TensorSlice<'_>> {
        self.tensors.get(place).map(|entry| TensorSlice {
            file: &self.file,
            entry,
        })
    }

    /// How many tensors the file holds.
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether the file holds no tensor.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// The bytes of all tensors together, without the header.
    pub fn total_bytes(&self) -> u64 {
        self.tensors
            .iter()
            .map(|tensor| tensor.range.len() as u64)
            .sum()
    }
}

/// The shortest of `names` that is `wanted` with a dotted prefix more or less.
pub(crate) fn nearest<'a>(names: impl Iterator<Item = &'a str>, wanted: &str) -> Option<String> {
    let ends_with = |long: &str, short: &str| {
        !short.is_empty()
            && long
                .strip_suffix(short)
                .is_some_and(|prefix| prefix.ends_with('.'))
    };
    let alike = names.filter(|name| ends_with(name, wanted) || ends_with(wanted, name));
    alike
        .min_by_key(|name| (name.len().abs_diff(wanted.len()), *name))
        .map(str::to_owned)
}

/// One tensor of a file: its name, type, shape and bytes. Copying it copies no data.
#[derive(Clone, Copy)]
pub struct TensorSlice<'a> {
    file: &'a Arc<MappedFile>,
    entry: &'a TensorEntry,
}

impl<'a> TensorSlice<'a> {
    /// The name of the tensor.
    pub fn name(&self) -> &'a str {
        &self.entry.name
    }

    /// The type of its elements.
    pub fn dtype(&self) -> Dtype {
        self.entry.dtype
    }

    /// Its shape; empty for a single value. The data is in row-major order.
    pub fn shape(&self) -> &'a [usize] {
        &self.entry.shape
    }

    /// Its data, little-endian. See [`MappedBytes::is_aligned_to`] before reading it as numbers.
    pub fn bytes(&self) -> &'a [u8] {
        // In bounds: the header was checked against this mapping, which never changes its length.
        &self.file[self.entry.range.clone()]
    }

    /// Where its data lies, in bytes from the start of the file.
    pub fn range(&self) -> Range<usize> {
        self.entry.range.clone()
    }

    /// The file its data lies in.
    pub fn file(&self) -> &'a Arc<MappedFile> {
        self.file
    }

    /// The tensor without its name, as other files give it too.
    pub(crate) fn to_stored(self) -> StoredTensor {
        let storage = Arc::new(Storage::of_mapped(self.to_mapped(), false));
        StoredTensor::in_rows(self.dtype(), self.shape().to_vec(), storage)
    }

    /// Its data as an owner that keeps the file mapped, for a tensor without a copy.
    pub fn to_mapped(&self) -> MappedBytes {
        MappedBytes::within(Arc::clone(self.file), self.range())
    }
}

impl fmt::Debug for TensorSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorSlice")
            .field("name", &self.name())
            .field("dtype", &self.dtype())
            .field("shape", &self.shape())
            .field("range", &self.range())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_differs_by_a_prefix() {
        let names = ["bert.encoder.bias", "x.bert.encoder.bias", "encoder.weight"];
        let near = |wanted| nearest(names.into_iter(), wanted);
        assert_eq!(near("encoder.bias").as_deref(), Some("bert.encoder.bias"));
        assert_eq!(
            near("model.encoder.weight").as_deref(),
            Some("encoder.weight")
        );
        assert_eq!(near("ncoder.bias"), None);
        assert_eq!(near(""), None);
    }
}
