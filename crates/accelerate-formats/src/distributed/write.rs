//! Writing: each rank its parts, then one rank the description.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::DESCRIPTION_FILE;
use super::description::{
    Chunk, Description, FILESYSTEM, METADATA, PathPart, Place, ShardedTensor,
};
use crate::atomic_file::AtomicFile;
use crate::dtype::Dtype;
use crate::error::{DistributedFault, Error, Result};
use crate::pickle::PickleWriter;
use crate::tensor::{Storage, StoredTensor};
use crate::torch::write_archive;
use crate::value::Value;

/// Where in a file a part may begin, so that it can be used where it is mapped.
const ALIGNMENT: u64 = 64;
/// The version of the format.
const VERSION: &str = "1.0.0";

/// Writes the parts of one rank: `__{rank}_0.distcp`.
///
/// The file is whole or absent. Write into a new folder: a description that is there already
/// would speak of files that are replaced.
///
/// # Collective
/// Every rank of a job may write, each its own file; then one calls [`write_description`] with what
/// all of them got from [`finish`](Self::finish).
#[derive(Debug)]
pub struct DistributedWriter {
    folder: PathBuf,
    name: String,
    out: Counting<AtomicFile>,
    part: WrittenPart,
}

/// What one rank wrote, to be sent to the rank that writes the description.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenPart {
    tensors: Vec<WrittenChunk>,
    values: Vec<(String, Vec<PathPart>, Place)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WrittenChunk {
    name: String,
    path: Vec<PathPart>,
    /// As PyTorch spells it.
    dtype: String,
    shape: Vec<usize>,
    offsets: Vec<usize>,
    sizes: Vec<usize>,
    place: Place,
}

/// A part of a tensor, before it is written.
#[derive(Debug, Clone, Copy)]
pub struct ChunkToWrite<'a> {
    /// The name: keys joined by dots.
    pub name: &'a str,
    /// The keys.
    pub path: &'a [PathPart],
    /// The type of its elements.
    pub dtype: Dtype,
    /// The shape of the whole tensor.
    pub shape: &'a [usize],
    /// The first element of this part, in each dimension.
    pub offsets: &'a [usize],
    /// The lengths of this part.
    pub sizes: &'a [usize],
}

impl ChunkToWrite<'_> {
    /// What its type and lengths need.
    fn bytes(&self) -> usize {
        self.dtype.bits_of(self.sizes).unwrap_or(usize::MAX) / 8
    }
}

impl DistributedWriter {
    /// Begins the file of `rank` in a folder that exists.
    ///
    /// # Errors
    /// [`Error::NotAFile`] or [`Error::Write`] if the file cannot be begun.
    pub fn create(folder: impl AsRef<Path>, rank: usize) -> Result<Self> {
        let folder = folder.as_ref();
        let name = format!("__{rank}_0.distcp");
        let out = Counting {
            inner: AtomicFile::create(folder.join(&name))?,
            written: 0,
        };
        Ok(Self {
            folder: folder.to_owned(),
            name,
            out,
            part: WrittenPart::default(),
        })
    }

    /// Writes a part of a tensor: contiguous, row-major, little-endian.
    ///
    /// # Errors
    /// [`Error::Distributed`] if the part does not fit the tensor or `bytes` has not its size: the
    /// file is unharmed. [`Error::WriteTensor`] if the system fails.
    pub fn write_chunk(&mut self, chunk: ChunkToWrite<'_>, bytes: &[u8]) -> Result<()> {
        let expected_bytes = chunk.bytes();
        if expected_bytes != bytes.len() {
            return Err(self.wrong_size(&chunk, bytes.len()));
        }
        self.write_chunk_pieces(chunk, std::iter::once(Ok(bytes)))
    }

    /// Writes a part of a tensor piece after piece. After an error the file must be given up.
    ///
    /// # Errors
    /// As [`write_chunk`](Self::write_chunk), and those of the pieces.
    pub fn write_chunk_pieces<P: AsRef<[u8]>>(
        &mut self,
        chunk: ChunkToWrite<'_>,
        pieces: impl IntoIterator<Item = Result<P>>,
    ) -> Result<()> {
        let ChunkToWrite {
            name,
            dtype,
            shape,
            offsets,
            sizes,
            ..
        } = chunk;
        if !super::description::fits(offsets, sizes, shape) {
            return Err(self.refused(DistributedFault::ChunkOutside {
                tensor: name.to_owned(),
                shape: shape.to_vec(),
                offsets: offsets.to_vec(),
                sizes: sizes.to_vec(),
            }));
        }
        let storage = Arc::new(Storage::pending(chunk.bytes()));
        let head = StoredTensor::in_rows(dtype, sizes.to_vec(), storage);
        let begin = self.out.written;
        let written = self.stream(&head.into(), pieces);
        let (place, found) = written.map_err(|error| error.of_tensor(name, begin))?;
        if found != chunk.bytes() as u64 {
            let found = usize::try_from(found).unwrap_or(usize::MAX);
            return Err(self.wrong_size(&chunk, found));
        }
        self.note(&chunk, place);
        Ok(())
    }

    /// Gives a tensor that was written whole by this writer a second name: both have one place in
    /// the file.
    ///
    /// # Errors
    /// [`Error::TensorNotFound`] if this writer wrote no tensor of the first name.
    pub fn refer(&mut self, alias: &str, path: &[PathPart], stored: &str) -> Result<()> {
        let found = self.part.tensors.iter().find(|chunk| chunk.name == stored);
        let mut chunk = found.cloned().ok_or_else(|| Error::TensorNotFound {
            path: self.folder.join(&self.name),
            tensor: stored.to_owned(),
            nearest: None,
        })?;
        chunk.name = alias.to_owned();
        chunk.path = path.to_vec();
        self.part.tensors.push(chunk);
        Ok(())
    }

    fn note(&mut self, chunk: &ChunkToWrite<'_>, place: Place) {
        self.part.tensors.push(WrittenChunk {
            name: chunk.name.to_owned(),
            path: chunk.path.to_vec(),
            dtype: chunk.dtype.torch_name().unwrap_or_default().to_owned(),
            shape: chunk.shape.to_vec(),
            offsets: chunk.offsets.to_vec(),
            sizes: chunk.sizes.to_vec(),
            place,
        });
    }

    fn wrong_size(&self, chunk: &ChunkToWrite<'_>, found_bytes: usize) -> Error {
        self.refused(DistributedFault::WrongSize {
            tensor: chunk.name.to_owned(),
            expected_bytes: chunk.bytes(),
            found_bytes,
        })
    }

    fn refused(&self, fault: DistributedFault) -> Error {
        Error::Distributed {
            folder: self.folder.clone(),
            fault: Box::new(fault),
        }
    }

    /// Writes a value that is no tensor. One rank writes each such value.
    ///
    /// # Errors
    /// [`Error::TorchUnwritable`] if it holds an unknown class, [`Error::Write`] if the system fails.
    pub fn write_value(&mut self, name: &str, path: &[PathPart], value: &Value) -> Result<()> {
        let (place, _) = self.stream(value, std::iter::empty::<Result<&[u8]>>())?;
        self.part
            .values
            .push((name.to_owned(), path.to_vec(), place));
        Ok(())
    }

    fn stream<P: AsRef<[u8]>>(
        &mut self,
        value: &Value,
        pieces: impl IntoIterator<Item = Result<P>>,
    ) -> Result<(Place, u64)> {
        let path = self.folder.join(&self.name);
        let padding = self.out.written.next_multiple_of(ALIGNMENT) - self.out.written;
        let padded = self.out.write_all(&vec![0; padding as usize]);
        padded.map_err(|source| Error::Write {
            path: path.clone(),
            source,
        })?;
        let offset = self.out.written;
        let found = write_archive(&mut self.out, &path, value, pieces)?;
        let place = Place {
            file: self.name.clone(),
            offset,
            length: self.out.written - offset,
        };
        Ok((place, found))
    }

    /// The name of the file.
    pub fn file_name(&self) -> &str {
        &self.name
    }

    /// Puts the file in place, and tells what is in it.
    ///
    /// # Errors
    /// As [`AtomicFile::commit`].
    pub fn finish(self) -> Result<WrittenPart> {
        self.out.inner.commit()?;
        Ok(self.part)
    }
}

#[derive(Debug)]
struct Counting<W> {
    inner: W,
    written: u64,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes the description of a folder from what all ranks wrote there. Only with it, the folder is a
/// checkpoint.
///
/// # Collective
/// One rank calls this, when every rank has finished its file.
///
/// # Errors
/// [`Error::Distributed`] if the parts do not make whole tensors or something was written twice, else
/// as [`AtomicFile`].
pub fn write_description(folder: impl AsRef<Path>, parts: &[WrittenPart]) -> Result<()> {
    let folder = folder.as_ref();
    let description = join(parts).map_err(|fault| Error::Distributed {
        folder: folder.to_owned(),
        fault: Box::new(fault),
    })?;
    let path = folder.join(DESCRIPTION_FILE);
    let mut file = AtomicFile::create(&path)?;
    let written = file.write_all(&pickled(&description));
    written.map_err(|source| Error::Write { path, source })?;
    file.commit()
}

fn join(parts: &[WrittenPart]) -> Result<Description, DistributedFault> {
    let mut description = Description::default();
    let conflict = |name: &str| DistributedFault::Conflict {
        name: name.to_owned(),
    };
    for chunk in parts.iter().flat_map(|part| &part.tensors) {
        let dtype = Dtype::from_torch_name(&chunk.dtype).ok_or(DistributedFault::Lacks {
            what: "a type that PyTorch has",
        })?;
        let tensor = description
            .tensors
            .entry(chunk.name.clone())
            .or_insert_with(|| ShardedTensor {
                name: chunk.name.clone(),
                dtype,
                shape: chunk.shape.clone(),
                chunks: Vec::new(),
            });
        let again = tensor
            .chunks
            .iter()
            .any(|known| known.offsets == chunk.offsets);
        if tensor.dtype != dtype || tensor.shape != chunk.shape || again {
            return Err(conflict(&chunk.name));
        }
        tensor.chunks.push(Chunk {
            offsets: chunk.offsets.clone(),
            sizes: chunk.sizes.clone(),
            place: chunk.place.clone(),
        });
        description
            .paths
            .insert(chunk.name.clone(), chunk.path.clone());
    }
    for (name, path, place) in parts.iter().flat_map(|part| &part.values) {
        let twice = description
            .values
            .insert(name.clone(), place.clone())
            .is_some();
        if twice || description.tensors.contains_key(name) {
            return Err(conflict(name));
        }
        description.paths.insert(name.clone(), path.clone());
    }
    description
        .tensors
        .values()
        .try_for_each(ShardedTensor::check)?;
    description.check_paths()?;
    Ok(description)
}

fn pickled(description: &Description) -> Vec<u8> {
    let mut pickle = PickleWriter::new();
    object(&mut pickle, METADATA, "Metadata", |pickle| {
        pickle.text("state_dict_metadata");
        dict(pickle, |pickle| {
            for (name, tensor) in &description.tensors {
                pickle.text(name);
                write_tensor(pickle, tensor);
            }
            for name in description.values.keys() {
                pickle.text(name);
                pickle.global(METADATA, "BytesStorageMetadata");
                pickle.tuple_of(0);
                pickle.new_object();
            }
        });
        pickle.text("planner_data");
        dict(pickle, |pickle| write_paths(pickle, &description.paths));
        pickle.text("storage_data");
        dict(pickle, |pickle| {
            for tensor in description.tensors.values() {
                for (index, chunk) in tensor.chunks.iter().enumerate() {
                    write_key(pickle, &tensor.name, Some((index, &chunk.offsets)));
                    write_place(pickle, &chunk.place);
                }
            }
            for (name, place) in &description.values {
                write_key(pickle, name, None);
                write_place(pickle, place);
            }
        });
        pickle.text("storage_meta");
        pickle.none();
        pickle.text("version");
        pickle.text(VERSION);
    });
    pickle.finish()
}

fn dict(pickle: &mut PickleWriter, entries: impl FnOnce(&mut PickleWriter)) {
    pickle.empty_dict();
    pickle.mark();
    entries(pickle);
    pickle.set_items();
}

/// An object that is made empty and then given its fields.
fn object(
    pickle: &mut PickleWriter,
    module: &str,
    class: &str,
    fields: impl FnOnce(&mut PickleWriter),
) {
    pickle.global(module, class);
    pickle.tuple_of(0);
    pickle.new_object();
    dict(pickle, fields);
    pickle.build();
}

fn size(pickle: &mut PickleWriter, sizes: &[usize]) {
    pickle.global("torch", "Size");
    pickle.sizes(sizes);
    pickle.tuple_of(1);
    pickle.reduce();
}

fn write_tensor(pickle: &mut PickleWriter, tensor: &ShardedTensor) {
    object(pickle, METADATA, "TensorStorageMetadata", |pickle| {
        pickle.text("properties");
        write_properties(pickle, tensor.dtype);
        pickle.text("size");
        size(pickle, &tensor.shape);
        pickle.text("chunks");
        pickle.empty_list();
        pickle.mark();
        for chunk in &tensor.chunks {
            object(pickle, METADATA, "ChunkStorageMetadata", |pickle| {
                pickle.text("offsets");
                size(pickle, &chunk.offsets);
                pickle.text("sizes");
                size(pickle, &chunk.sizes);
            });
        }
        pickle.appends();
    });
}

/// Type, layout, whether it wants a gradient, memory format, whether its memory was pinned.
fn write_properties(pickle: &mut PickleWriter, dtype: Dtype) {
    pickle.global(METADATA, "TensorProperties");
    pickle.tuple_of(0);
    pickle.new_object();
    pickle.mark();
    pickle.global("torch", dtype.torch_name().unwrap_or_default());
    pickle.global("torch.serialization", "_get_layout");
    pickle.text("torch.strided");
    pickle.tuple_of(1);
    pickle.reduce();
    pickle.bool(false);
    pickle.global(METADATA, "_MEM_FORMAT_ENCODING");
    pickle.int(0);
    pickle.tuple_of(1);
    pickle.reduce();
    pickle.bool(false);
    pickle.tuple();
    pickle.build();
}

fn write_paths(pickle: &mut PickleWriter, paths: &BTreeMap<String, Vec<PathPart>>) {
    for (name, path) in paths {
        pickle.text(name);
        pickle.mark();
        for part in path {
            match part {
                PathPart::Key(key) => pickle.text(key),
                PathPart::Index(index) => pickle.usize(*index),
            }
        }
        pickle.tuple();
    }
}

fn write_key(pickle: &mut PickleWriter, name: &str, part: Option<(usize, &[usize])>) {
    object(pickle, METADATA, "MetadataIndex", |pickle| {
        pickle.text("fqn");
        pickle.text(name);
        pickle.text("index");
        match part {
            Some((index, offsets)) => {
                pickle.usize(index);
                pickle.text("offset");
                size(pickle, offsets);
            }
            None => pickle.none(),
        }
    });
}

fn write_place(pickle: &mut PickleWriter, place: &Place) {
    object(pickle, FILESYSTEM, "_StorageInfo", |pickle| {
        pickle.text("relative_path");
        pickle.text(&place.file);
        pickle.text("offset");
        pickle.int(i128::from(place.offset));
        pickle.text("length");
        pickle.int(i128::from(place.length));
    });
}
