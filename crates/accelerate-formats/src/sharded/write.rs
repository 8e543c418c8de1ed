//! Writing one file after another, then the index.

use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::plan::{bytes, plan};
use super::shard::{Shard, ShardWriter};
use super::{ShardFormat, ShardSize};
use crate::atomic_file::{AtomicFile, SealedFile};
use crate::error::{Error, Result, WriteFault};
use crate::folder::names_in;
use crate::safetensors::{Metadata, TensorHeader};

/// How weights are put into files.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ShardedOptions {
    /// How large a file may become.
    pub max_shard_size: ShardSize,
    /// The kind of file.
    pub format: ShardFormat,
    /// Whether files of the other kind, from earlier saves, stay where they are.
    pub keep_other_format: bool,
    /// Text for the header of every safetensors file, besides `format: pt`.
    pub metadata: Metadata,
    /// Second names of tied tensors, each with the name of the tensor that is written.
    pub aliases: Vec<(String, String)>,
}

impl ShardedOptions {
    /// The same with another limit.
    #[must_use]
    pub fn with_max_shard_size(mut self, max_shard_size: ShardSize) -> Self {
        self.max_shard_size = max_shard_size;
        self
    }

    /// The same with another kind of file.
    #[must_use]
    pub fn with_format(mut self, format: ShardFormat) -> Self {
        self.format = format;
        self
    }

    /// The same, with files of the other kind staying where they are.
    #[must_use]
    pub fn keeping_other_format(mut self) -> Self {
        self.keep_other_format = true;
        self
    }

    /// The same with a second name for a tensor.
    #[must_use]
    pub fn with_alias(mut self, alias: impl Into<String>, stored: impl Into<String>) -> Self {
        self.aliases.push((alias.into(), stored.into()));
        self
    }
}

/// Writes weights into a folder: `model.safetensors` if one file is enough, else
/// `model-00001-of-00003.safetensors` and so on with `model.safetensors.index.json`; or the files of
/// another [`ShardFormat`].
///
/// All files are written under hidden names, and put in place when the last of them is complete on
/// disk: whatever fails before leaves what was there untouched. Then files of earlier saves that
/// would be taken for a part of these weights are deleted: other shards, other indexes; and files
/// of the other format, unless the options keep them. An earlier index is deleted before the first
/// file is replaced, so that it never speaks of files from two saves.
#[derive(Debug)]
pub struct ShardedWriter {
    folder: PathBuf,
    format: ShardFormat,
    keep_other_format: bool,
    /// What is still to be begun, each with the name of its file.
    shards: std::vec::IntoIter<(String, Shard)>,
    current: Option<ShardWriter>,
    sealed: Vec<SealedFile>,
    weight_map: BTreeMap<String, String>,
    total_size: u64,
    count: usize,
}

impl ShardedWriter {
    /// Begins to write these tensors into a folder, which is made where it is absent.
    ///
    /// Tensors are dealt to files in the order given; within a file, they are asked for in the order
    /// of the format.
    ///
    /// # Errors
    /// [`Error::Write`] if the folder cannot be made, and those of [`SafetensorsWriter::create`] or
    /// [`TorchWriter::create`].
    ///
    /// [`SafetensorsWriter::create`]: crate::SafetensorsWriter::create
    /// [`TorchWriter::create`]: crate::TorchWriter::create
    pub fn create(
        folder: impl AsRef<Path>,
        tensors: impl IntoIterator<Item = TensorHeader>,
        options: &ShardedOptions,
    ) -> Result<Self> {
        let folder = folder.as_ref();
        std::fs::create_dir_all(folder).map_err(|source| Error::Write {
            path: folder.to_owned(),
            source,
        })?;
        let shards = plan(tensors, options.max_shard_size);
        let mut writer = Self {
            folder: folder.to_owned(),
            format: options.format,
            keep_other_format: options.keep_other_format,
            shards: Vec::new().into_iter(),
            current: None,
            sealed: Vec::new(),
            weight_map: BTreeMap::new(),
            total_size: 0,
            count: shards.len(),
        };
        let shards = shards.into_iter().enumerate();
        let shards: Result<Vec<(String, Shard)>> = shards
            .map(|(place, tensors)| writer.shard(place, tensors, options))
            .collect();
        writer.shards = shards?.into_iter();
        writer.advance()?;
        Ok(writer)
    }

    fn shard(
        &mut self,
        place: usize,
        tensors: Vec<TensorHeader>,
        options: &ShardedOptions,
    ) -> Result<(String, Shard)> {
        let file = self.format.shard(place, self.count);
        for tensor in &tensors {
            self.total_size += bytes(tensor);
            self.map(&tensor.name, &file)?;
        }
        let names: HashSet<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        let aliases: Vec<(String, String)> = options
            .aliases
            .iter()
            .filter(|(_, stored)| names.contains(stored.as_str()))
            .cloned()
            .collect();
        if self.format == ShardFormat::Torch {
            // The file has these names as well as the others.
            for (alias, _) in &aliases {
                self.map(alias, &file)?;
            }
        }
        let shard = Shard {
            tensors,
            aliases,
            metadata: options.metadata.clone().with("format", "pt"),
        };
        Ok((file, shard))
    }

    fn map(&mut self, name: &str, file: &str) -> Result<()> {
        let known = self.weight_map.insert(name.to_owned(), file.to_owned());
        if known.is_none() {
            return Ok(());
        }
        Err(Error::Unwritable {
            path: self.folder.join(file),
            fault: WriteFault::DuplicateName {
                tensor: name.to_owned(),
            },
        })
    }

    /// The tensor to write next, or `None` when all are written.
    pub fn pending(&self) -> Option<&TensorHeader> {
        self.current.as_ref().and_then(ShardWriter::pending)
    }

    /// Writes the data of the pending tensor: contiguous, row-major, little-endian.
    ///
    /// # Errors
    /// [`Error::Unwritable`] if `name` is not the pending tensor or `bytes` has not its size,
    /// [`Error::WriteTensor`] if the system fails.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.write_pieces(name, std::iter::once(Ok(bytes)))
    }

    /// Writes the data of the pending tensor piece after piece.
    ///
    /// # Errors
    /// As [`write`](Self::write), and those of the pieces; after an error nothing more can be
    /// written.
    pub fn write_pieces<P: AsRef<[u8]>>(
        &mut self,
        name: &str,
        pieces: impl IntoIterator<Item = Result<P>>,
    ) -> Result<()> {
        let Some(writer) = &mut self.current else {
            return Err(Error::Unwritable {
                path: self.folder.clone(),
                fault: WriteFault::OutOfOrder {
                    expected: None,
                    found: name.to_owned(),
                },
            });
        };
        let begin = writer.position();
        let written = writer.write_pieces(name, pieces);
        written.map_err(|error| error.of_tensor(name, begin))?;
        self.advance()
    }

    /// Finishes files that are complete, and begins the next.
    fn advance(&mut self) -> Result<()> {
        while self.pending().is_none() {
            if let Some(writer) = self.current.take() {
                self.sealed.push(writer.seal()?);
            }
            let Some((file, shard)) = self.shards.next() else {
                return Ok(());
            };
            let path = self.folder.join(file);
            self.current = Some(ShardWriter::create(&path, shard, self.format)?);
        }
        Ok(())
    }

    /// Writes the index where there are several files, puts all of them in place, deletes what is
    /// left of earlier saves, and names the files that were written.
    ///
    /// # Errors
    /// [`Error::Unwritable`] if tensors are still pending, [`Error::Write`] if the system fails.
    pub fn finish(mut self) -> Result<Vec<PathBuf>> {
        if let Some(writer) = self.current.take() {
            // Tells which tensor is pending.
            writer.seal()?;
        }
        if self.count > 1 {
            let index = self.write_index()?;
            self.sealed.push(index);
        }
        remove(&self.folder.join(self.format.index()))?;
        let mut written = Vec::with_capacity(self.sealed.len());
        for file in std::mem::take(&mut self.sealed) {
            written.push(file.path().to_owned());
            file.place()?;
        }
        self.remove_stale(&written)?;
        Ok(written)
    }

    fn write_index(&self) -> Result<SealedFile> {
        let path = self.folder.join(self.format.index());
        let index = Index {
            metadata: IndexMetadata {
                total_size: self.total_size,
            },
            weight_map: &self.weight_map,
        };
        let mut file = AtomicFile::create(&path)?;
        let written = serde_json::to_writer_pretty(&mut file, &index).map_err(Into::into);
        let written = written.and_then(|()| file.write_all(b"\n"));
        written.map_err(|source| Error::Write { path, source })?;
        file.seal()
    }

    fn remove_stale(&self, written: &[PathBuf]) -> Result<()> {
        let other = match self.format {
            ShardFormat::Safetensors => ShardFormat::Torch,
            ShardFormat::Torch => ShardFormat::Safetensors,
        };
        for name in names_in(&self.folder)? {
            let is_stale =
                self.format.makes(&name) || (!self.keep_other_format && other.makes(&name));
            let path = self.folder.join(&name);
            if is_stale && !written.contains(&path) {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(Error::Write {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

#[derive(Serialize)]
struct Index<'a> {
    metadata: IndexMetadata,
    weight_map: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct IndexMetadata {
    total_size: u64,
}
