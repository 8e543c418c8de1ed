//! Writing one file: tensor after tensor, without a second copy in memory.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorInfo;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::{LENGTH_BYTES, MAX_HEADER_BYTES, METADATA_KEY, Metadata};
use crate::atomic_file::{AtomicFile, SealedFile};
use crate::dtype::Dtype;
use crate::error::{Error, Result, WriteFault};

/// What a file says of a tensor before its data comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorHeader {
    /// The name of the tensor.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its shape; empty for a single value.
    pub shape: Vec<usize>,
}

/// A tensor in memory, to be written.
#[derive(Debug, Clone, Copy)]
pub struct TensorData<'a> {
    /// The name of the tensor.
    pub name: &'a str,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its shape; empty for a single value.
    pub shape: &'a [usize],
    /// Its data: contiguous, row-major, little-endian.
    pub bytes: &'a [u8],
}

impl<'a> TensorData<'a> {
    /// A tensor from its parts; nothing is checked before it is written.
    pub fn new(name: &'a str, dtype: Dtype, shape: &'a [usize], bytes: &'a [u8]) -> Self {
        Self {
            name,
            dtype,
            shape,
            bytes,
        }
    }
}

/// Writes tensors that are all in memory to `path`, whole or not at all.
///
/// The same tensors and metadata give the same bytes, in whatever order they come.
///
/// # Errors
/// As for [`SafetensorsWriter`].
pub fn write_file<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = TensorData<'a>>,
    metadata: &Metadata,
) -> Result<()> {
    let mut tensors: Vec<TensorData<'a>> = tensors.into_iter().collect();
    tensors.sort_by(|a, b| file_order((a.dtype, a.name), (b.dtype, b.name)));
    let headers = tensors.iter().map(|tensor| TensorHeader {
        name: tensor.name.to_owned(),
        dtype: tensor.dtype,
        shape: tensor.shape.to_vec(),
    });
    let mut writer = SafetensorsWriter::create(path, headers, metadata)?;
    for tensor in tensors {
        writer.write(tensor.name, tensor.bytes)?;
    }
    writer.finish()
}

/// The order of the safetensors format: the largest element type first, so that every tensor is
/// aligned, then by name.
fn file_order(a: (Dtype, &str), b: (Dtype, &str)) -> Ordering {
    b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1))
}

/// Writes a file tensor after tensor, so that only one of them needs to be in memory.
///
/// All tensors are named first, because the header comes first. Then each is written when
/// [`pending`](Self::pending) asks for it, and [`finish`](Self::finish) puts the file in place
/// as [`AtomicFile`] does. Dropping the writer before that leaves nothing.
///
/// ```
/// use accelerate_formats::{Dtype, Metadata, SafetensorsWriter, TensorHeader};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("model.safetensors");
/// let headers = ["a", "b"].map(|name| TensorHeader { name: name.into(), dtype: Dtype::U8, shape: vec![2] });
/// let mut writer = SafetensorsWriter::create(&path, headers, &Metadata::pytorch())?;
/// while let Some(tensor) = writer.pending() {
///     let name = tensor.name.clone();
///     writer.write(&name, &[1, 2])?; // in earnest: fetch `name` from the device
/// }
/// writer.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SafetensorsWriter {
    path: PathBuf,
    /// None after a failed write: the partial file is removed at once.
    file: Option<AtomicFile>,
    pending: std::vec::IntoIter<Planned>,
    /// In bytes.
    written: u64,
}

/// A tensor with its place in the file.
#[derive(Debug)]
struct Planned {
    header: TensorHeader,
    /// In bytes from the start of the data.
    begin: usize,
    end: usize,
}

impl Planned {
    fn bytes(&self) -> usize {
        self.end - self.begin
    }

    fn wrong_size(&self, found_bytes: usize) -> WriteFault {
        WriteFault::WrongSize {
            tensor: self.header.name.clone(),
            dtype: self.header.dtype,
            shape: self.header.shape.clone(),
            expected_bytes: self.bytes(),
            found_bytes,
        }
    }
}

impl SafetensorsWriter {
    /// Begins the file that will be at `path` with a header for these tensors, in any order.
    ///
    /// # Errors
    /// [`Error::Unwritable`] if names stand twice or sizes make no sound file,
    /// [`Error::NotAFile`] or [`Error::Write`] if the file cannot be begun.
    pub fn create(
        path: impl AsRef<Path>,
        tensors: impl IntoIterator<Item = TensorHeader>,
        metadata: &Metadata,
    ) -> Result<Self> {
        Self::create_with(path.as_ref(), tensors, metadata, AtomicFile::create)
    }

    /// As [`create`](Self::create), into a file that was begun, such as one that is watched.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn into_file(
        file: AtomicFile,
        tensors: impl IntoIterator<Item = TensorHeader>,
        metadata: &Metadata,
    ) -> Result<Self> {
        let path = file.path().to_owned();
        Self::create_with(&path, tensors, metadata, |_| Ok(file))
    }

    fn create_with<'p>(
        path: &'p Path,
        tensors: impl IntoIterator<Item = TensorHeader>,
        metadata: &Metadata,
        begin: impl FnOnce(&'p Path) -> Result<AtomicFile>,
    ) -> Result<Self> {
        let header = plan(tensors)
            .and_then(|planned| Ok((header_bytes(&planned, metadata, MAX_HEADER_BYTES)?, planned)));
        let (header, planned) = header.map_err(|fault| Error::Unwritable {
            path: path.to_owned(),
            fault,
        })?;
        let mut writer = Self {
            path: path.to_owned(),
            file: Some(begin(path)?),
            pending: planned.into_iter(),
            written: header.len() as u64,
        };
        if let Some(file) = &mut writer.file {
            let written = file.write_all(&header);
            written.map_err(|source| Error::Write {
                path: path.to_owned(),
                source,
            })?;
        }
        Ok(writer)
    }

    /// Where the file will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tensor to write next, or `None` when all are written.
    pub fn pending(&self) -> Option<&TensorHeader> {
        self.pending
            .as_slice()
            .first()
            .map(|planned| &planned.header)
    }

    /// How many bytes the file has so far.
    pub fn position(&self) -> u64 {
        self.written
    }

    /// Writes the data of the pending tensor: contiguous, row-major, little-endian.
    ///
    /// # Errors
    /// [`Error::Unwritable`] if `name` is not the pending tensor or `bytes` has not its size:
    /// the file is unharmed and the right tensor can still be written. [`Error::Write`] if the
    /// system fails, for example on a full disk: the partial file is removed at once.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let next = self.turn_of(name)?;
        if next.bytes() != bytes.len() {
            let fault = next.wrong_size(bytes.len());
            return Err(self.refused(fault));
        }
        self.write_pieces(name, std::iter::once(Ok(bytes)))
    }

    /// Writes the data of the pending tensor piece after piece.
    ///
    /// # Errors
    /// As [`write`](Self::write), and those of the pieces. When it is not the wrong tensor, the
    /// partial file is removed at once.
    pub fn write_pieces<P: AsRef<[u8]>>(
        &mut self,
        name: &str,
        pieces: impl IntoIterator<Item = Result<P>>,
    ) -> Result<()> {
        let next = self.turn_of(name)?;
        let expected = next.bytes();
        let Some(mut file) = self.file.take() else {
            return Err(self.refused(WriteFault::GivenUp));
        };
        // Whatever fails from here on, the file is dropped.
        let mut found = 0;
        for piece in pieces {
            let piece = piece?;
            let piece = piece.as_ref();
            found += piece.len();
            file.write_all(piece).map_err(|source| Error::Write {
                path: self.path.clone(),
                source,
            })?;
        }
        if found != expected {
            let fault = self.turn_of(name)?.wrong_size(found);
            return Err(self.refused(fault));
        }
        self.written += found as u64;
        self.file = Some(file);
        self.pending.next();
        Ok(())
    }

    fn refused(&self, fault: WriteFault) -> Error {
        Error::Unwritable {
            path: self.path.clone(),
            fault,
        }
    }

    /// The pending tensor, which must have this name.
    fn turn_of(&self, name: &str) -> Result<&Planned> {
        let next = self.pending.as_slice().first();
        let next = next.filter(|next| next.header.name == name);
        next.ok_or_else(|| {
            if self.file.is_none() {
                return self.refused(WriteFault::GivenUp);
            }
            let expected = self.pending().map(|next| next.name.clone());
            self.refused(WriteFault::OutOfOrder {
                expected,
                found: name.to_owned(),
            })
        })
    }

    /// Flushes the file to disk and puts it in place.
    ///
    /// # Errors
    /// [`Error::Unwritable`] if tensors are still pending or an earlier write failed, else as
    /// [`AtomicFile::commit`].
    pub fn finish(self) -> Result<()> {
        self.seal()?.place()
    }

    /// Flushes the file to disk, still under its hidden name.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn seal(self) -> Result<SealedFile> {
        let Self {
            path,
            file,
            pending,
            ..
        } = self;
        let fault = match (file, pending.as_slice().first()) {
            (Some(file), None) => return file.seal(),
            (None, _) => WriteFault::GivenUp,
            (Some(_), Some(next)) => WriteFault::Unfinished {
                missing: pending.len(),
                next: next.header.name.clone(),
            },
        };
        Err(Error::Unwritable { path, fault })
    }
}

/// Puts the tensors in file order and gives each its place.
fn plan(tensors: impl IntoIterator<Item = TensorHeader>) -> Result<Vec<Planned>, WriteFault> {
    let mut headers: Vec<TensorHeader> = tensors.into_iter().collect();
    headers.sort_by(|a, b| file_order((a.dtype, &a.name), (b.dtype, &b.name)));
    check_names(&headers)?;
    let mut begin = 0;
    let mut planned = Vec::with_capacity(headers.len());
    for header in headers {
        let end = end_of(&header, begin)?;
        planned.push(Planned { header, begin, end });
        begin = end;
    }
    Ok(planned)
}

fn check_names(headers: &[TensorHeader]) -> Result<(), WriteFault> {
    let mut seen = HashSet::with_capacity(headers.len());
    for TensorHeader { name, .. } in headers {
        if name == METADATA_KEY {
            return Err(WriteFault::ReservedName {
                tensor: name.clone(),
            });
        }
        if !seen.insert(name) {
            return Err(WriteFault::DuplicateName {
                tensor: name.clone(),
            });
        }
    }
    Ok(())
}

fn end_of(header: &TensorHeader, begin: usize) -> Result<usize, WriteFault> {
    let TensorHeader {
        name: tensor,
        dtype,
        shape,
    } = header;
    let (tensor, dtype, shape) = (tensor.clone(), *dtype, shape.clone());
    if dtype.to_file().is_none() {
        return Err(WriteFault::Dtype { tensor, dtype });
    }
    match dtype.bits_of(&shape) {
        Some(bits) if !bits.is_multiple_of(8) => Err(WriteFault::PartialByte {
            tensor,
            dtype,
            shape,
        }),
        bits => bits
            .and_then(|bits| begin.checked_add(bits / 8))
            .ok_or(WriteFault::SizeOverflow {
                tensor,
                dtype,
                shape,
            }),
    }
}

/// The length and the header, padded so that the data begins at a multiple of 8 bytes.
fn header_bytes(
    planned: &[Planned],
    metadata: &Metadata,
    limit_bytes: u64,
) -> Result<Vec<u8>, WriteFault> {
    let mut bytes = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut bytes, &HeaderJson { planned, metadata })
        .map_err(|source| WriteFault::Header { source })?;
    bytes.resize(bytes.len().next_multiple_of(LENGTH_BYTES), b' ');
    let length = (bytes.len() - LENGTH_BYTES) as u64;
    if length > limit_bytes {
        return Err(WriteFault::HeaderTooLong {
            header_bytes: length,
            limit_bytes,
        });
    }
    bytes[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// The header as the `safetensors` crate writes it, but with the metadata sorted, so that the
/// same input gives the same file.
struct HeaderJson<'a> {
    planned: &'a [Planned],
    metadata: &'a Metadata,
}

impl Serialize for HeaderJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.metadata.is_empty() {
            map.serialize_entry(METADATA_KEY, self.metadata.as_map())?;
        }
        for Planned { header, begin, end } in self.planned {
            let Some(dtype) = header.dtype.to_file() else {
                continue; // refused when the file was planned
            };
            let info = TensorInfo {
                dtype,
                shape: header.shape.clone(),
                data_offsets: (*begin, *end),
            };
            map.serialize_entry(&header.name, &info)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests;
