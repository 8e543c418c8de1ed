//! Writing one file after another, then the index.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::ShardSize;
use super::plan::{bytes, plan};
use crate::atomic_file::AtomicFile;
use crate::error::{Error, Result, WriteFault};
use crate::safetensors::{Metadata, SafetensorsWriter, TensorHeader};
use crate::weights::{INDEX_FILE, SINGLE_FILE, TORCH_INDEX_FILE, TORCH_SINGLE_FILE};

/// How weights are put into files.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ShardedOptions {
    /// How large a file may become.
    pub max_shard_size: ShardSize,
    /// Text for the header of every file, besides `format: pt`.
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

    /// The same with a second name for a tensor.
    #[must_use]
    pub fn with_alias(mut self, alias: impl Into<String>, stored: impl Into<String>) -> Self {
        self.aliases.push((alias.into(), stored.into()));
        self
    }
}

/// Writes weights into a folder: `model.safetensors` if one file is enough, else
/// `model-00001-of-00003.safetensors` and so on with `model.safetensors.index.json`.
///
/// Every file is whole or absent. When the last is there, files of earlier saves that would be
/// taken for a part of these weights, or before them, are deleted: other shards, other indexes,
/// `pytorch_model.bin`. An index that is there at the start is deleted at once, so that it never
/// speaks of files from two saves.
#[derive(Debug)]
pub struct ShardedWriter {
    folder: PathBuf,
    shards: std::vec::IntoIter<Shard>,
    current: Option<(String, SafetensorsWriter)>,
    written: Vec<String>,
    weight_map: BTreeMap<String, String>,
    total_size: u64,
    count: usize,
}

#[derive(Debug)]
struct Shard {
    file: String,
    tensors: Vec<TensorHeader>,
    metadata: Metadata,
}

impl ShardedWriter {
    /// Begins to write these tensors into a folder, which is made where it is absent.
    ///
    /// Tensors are dealt to files in the order given; within a file, they are asked for in the order
    /// of the format.
    ///
    /// # Errors
    /// [`Error::Write`] if the folder cannot be made, and those of [`SafetensorsWriter::create`].
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
            shards: Vec::new().into_iter(),
            current: None,
            written: Vec::new(),
            weight_map: BTreeMap::new(),
            total_size: 0,
            count: shards.len(),
        };
        let shards = shards.into_iter().enumerate();
        let shards: Result<Vec<Shard>> = shards
            .map(|(place, tensors)| writer.shard(place, tensors, options))
            .collect();
        writer.shards = shards?.into_iter();
        remove(&folder.join(INDEX_FILE))?;
        writer.advance()?;
        Ok(writer)
    }

    fn shard(
        &mut self,
        place: usize,
        tensors: Vec<TensorHeader>,
        options: &ShardedOptions,
    ) -> Result<Shard> {
        let file = match self.count {
            1 => SINGLE_FILE.to_owned(),
            count => format!("model-{:05}-of-{count:05}.safetensors", place + 1),
        };
        for tensor in &tensors {
            self.total_size += bytes(tensor);
            if self
                .weight_map
                .insert(tensor.name.clone(), file.clone())
                .is_some()
            {
                return Err(Error::Unwritable {
                    path: self.folder.join(&file),
                    fault: WriteFault::DuplicateName {
                        tensor: tensor.name.clone(),
                    },
                });
            }
        }
        let mut metadata = options.metadata.clone().with("format", "pt");
        for (alias, stored) in &options.aliases {
            if tensors.iter().any(|tensor| tensor.name == *stored) {
                metadata = metadata.with(alias, stored);
            }
        }
        Ok(Shard {
            file,
            tensors,
            metadata,
        })
    }

    /// The tensor to write next, or `None` when all are written.
    pub fn pending(&self) -> Option<&TensorHeader> {
        self.current
            .as_ref()
            .and_then(|(_, writer)| writer.pending())
    }

    /// Writes the data of the pending tensor: contiguous, row-major, little-endian.
    ///
    /// # Errors
    /// As [`SafetensorsWriter::write`], and [`Error::FlushFolder`] at the end of a file.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        match &mut self.current {
            Some((_, writer)) => writer.write(name, bytes)?,
            None => {
                return Err(Error::Unwritable {
                    path: self.folder.clone(),
                    fault: WriteFault::OutOfOrder {
                        expected: None,
                        found: name.to_owned(),
                    },
                });
            }
        }
        self.advance()
    }

    /// Finishes files that are complete, and begins the next.
    fn advance(&mut self) -> Result<()> {
        while self.pending().is_none() {
            if let Some((file, writer)) = self.current.take() {
                writer.finish()?;
                self.written.push(file);
            }
            let Some(Shard {
                file,
                tensors,
                metadata,
            }) = self.shards.next()
            else {
                return Ok(());
            };
            let writer = SafetensorsWriter::create(self.folder.join(&file), tensors, &metadata)?;
            self.current = Some((file, writer));
        }
        Ok(())
    }

    /// Writes the index where there are several files, deletes what is left of earlier saves, and
    /// names the files that were written.
    ///
    /// # Errors
    /// [`Error::Unwritable`] if tensors are still pending, [`Error::Write`] if the system fails.
    pub fn finish(mut self) -> Result<Vec<PathBuf>> {
        if let Some((_, writer)) = self.current.take() {
            // Tells which tensor is pending.
            writer.finish()?;
        }
        if self.count > 1 {
            self.write_index()?;
            self.written.push(INDEX_FILE.to_owned());
        }
        self.remove_stale()?;
        Ok(self
            .written
            .iter()
            .map(|file| self.folder.join(file))
            .collect())
    }

    fn write_index(&self) -> Result<()> {
        let path = self.folder.join(INDEX_FILE);
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
        file.commit()
    }

    fn remove_stale(&self) -> Result<()> {
        let entries = std::fs::read_dir(&self.folder).map_err(|source| Error::Open {
            path: self.folder.clone(),
            source,
        })?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_ours(&name) && !self.written.contains(&name) {
                remove(&entry.path())?;
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

/// Whether a save makes a file of this name.
fn is_ours(name: &str) -> bool {
    let standard = [SINGLE_FILE, INDEX_FILE, TORCH_SINGLE_FILE, TORCH_INDEX_FILE];
    if standard.contains(&name) {
        return true;
    }
    let families = [("model-", ".safetensors"), ("pytorch_model-", ".bin")];
    families.iter().any(|(begin, end)| {
        let middle = name
            .strip_prefix(begin)
            .and_then(|name| name.strip_suffix(end));
        middle
            .and_then(|middle| middle.split_once("-of-"))
            .is_some_and(|(place, count)| {
                [place, count]
                    .iter()
                    .all(|n| n.len() == 5 && n.bytes().all(|byte| byte.is_ascii_digit()))
            })
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_a_save_are_cleaned_away() {
        for name in [
            "model.safetensors",
            "pytorch_model.bin",
            "model-00001-of-00012.safetensors",
            "pytorch_model-00002-of-00002.bin",
        ] {
            assert!(is_ours(name), "{name}");
        }
        for name in [
            "model_1.safetensors",
            "model-1-of-2.safetensors",
            "model-00001-of-00002.bin",
            "optimizer.bin",
            "model-0000a-of-00002.safetensors",
        ] {
            assert!(!is_ours(name), "{name}");
        }
    }
}
