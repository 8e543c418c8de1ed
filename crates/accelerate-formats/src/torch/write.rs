//! Writing the zip archive, record after record.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rawzip::extra_fields::ExtraFieldId;
use rawzip::path::EntryPath;
use rawzip::{DataDescriptorOutput, Header, ZipArchiveWriter};

use super::encode::{Encoded, Source, encode};
use crate::atomic_file::{AtomicFile, SealedFile};
use crate::error::{Error, Result, TorchWriteFault};
use crate::tensor::Storage;
use crate::value::Value;

/// Where in the archive data may begin, so that it can be used where it is mapped.
const ALIGNMENT: u64 = 64;
/// A header in the archive, without the name.
const LOCAL_HEADER_BYTES: u64 = 30;
/// Number and length of an extra field.
const EXTRA_HEADER_BYTES: u64 = 4;
/// The number under which PyTorch pads: `FB`.
const PADDING: ExtraFieldId = ExtraFieldId::new(u16::from_le_bytes(*b"FB"));
/// The version of the archive.
const VERSION: &[u8] = b"3\n";

/// Writes a file that `torch.load(path, weights_only=True)` reads, storage after storage.
///
/// Tensors whose bytes are there already are written by themselves; those with
/// [`Storage::pending`](crate::Storage::pending) are asked for by [`pending`](Self::pending), so
/// that only one of them needs to be in memory. The file is whole or absent, as [`AtomicFile`]
/// makes it.
///
/// # Source
/// `torch.save`. Differs: the records `.format_version` and `.storage_alignment` are left out, with
/// which readers may compute places instead of looking them up.
#[derive(Debug)]
pub struct TorchWriter {
    path: PathBuf,
    /// None after a failed write: the partial file is removed at once.
    archive: Option<ArchiveWriter<AtomicFile>>,
    storages: std::vec::IntoIter<Source>,
    next: usize,
}

/// A storage whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingStorage {
    /// Its place among the storages of the value, in the order of first mention.
    pub index: usize,
    /// How many bytes it has.
    pub bytes: usize,
}

impl TorchWriter {
    /// Begins the file that will be at `path` with a description of `value`.
    ///
    /// # Errors
    /// [`Error::TorchUnwritable`] if the value cannot be written, [`Error::NotAFile`] or
    /// [`Error::Write`] if the file cannot be begun.
    pub fn create(path: impl AsRef<Path>, value: &Value) -> Result<Self> {
        Self::create_with(path.as_ref(), value, AtomicFile::create)
    }

    /// As [`create`](Self::create), into a file that was begun, such as one that is watched.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn into_file(file: AtomicFile, value: &Value) -> Result<Self> {
        let path = file.path().to_owned();
        Self::create_with(&path, value, |_| Ok(file))
    }

    fn create_with<'p>(
        path: &'p Path,
        value: &Value,
        begin: impl FnOnce(&'p Path) -> Result<AtomicFile>,
    ) -> Result<Self> {
        let Encoded { pickle, storages } =
            encode(value).map_err(|fault| unwritable(path, fault))?;
        let root = path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned());
        let mut archive = ArchiveWriter::new(begin(path)?, &root.unwrap_or_default());
        let begun = archive.begin(&pickle);
        begun.map_err(|source| write_error(path, source))?;
        let mut writer = Self {
            path: path.to_owned(),
            archive: Some(archive),
            storages: storages.into_iter(),
            next: 0,
        };
        writer.write_ready()?;
        Ok(writer)
    }

    /// Where the file will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The storage to write next, or `None` when all are written.
    pub fn pending(&self) -> Option<PendingStorage> {
        self.storages
            .as_slice()
            .first()
            .map(|source| PendingStorage {
                index: self.next,
                bytes: source.len(),
            })
    }

    /// The storage to write next, as it was given with the value.
    pub fn pending_storage(&self) -> Option<&Arc<Storage>> {
        self.storages.as_slice().first().and_then(Source::storage)
    }

    /// How many bytes the file has so far.
    pub fn position(&self) -> u64 {
        let archive = self.archive.as_ref();
        archive.map_or(0, |archive| archive.zip.stream_offset())
    }

    /// Writes the bytes of the pending storage, little-endian.
    ///
    /// # Errors
    /// [`Error::TorchUnwritable`] if none is pending or the length is another: the file is unharmed.
    /// [`Error::Write`] if the system fails: the partial file is removed at once.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(pending) = self.pending()
            && self.archive.is_some()
            && pending.bytes != bytes.len()
        {
            return Err(unwritable(&self.path, wrong_size(pending, bytes.len())));
        }
        self.write_pieces(std::iter::once(Ok(bytes)))
    }

    /// Writes the bytes of the pending storage, little-endian, piece after piece.
    ///
    /// # Errors
    /// As [`write`](Self::write), and those of the pieces; after an error the partial file is
    /// removed.
    pub fn write_pieces<P: AsRef<[u8]>>(
        &mut self,
        pieces: impl IntoIterator<Item = Result<P>>,
    ) -> Result<()> {
        let Some(mut archive) = self.archive.take() else {
            return Err(unwritable(&self.path, TorchWriteFault::GivenUp));
        };
        let Some(pending) = self.pending() else {
            self.archive = Some(archive);
            return Err(unwritable(&self.path, TorchWriteFault::NothingPending));
        };
        // Whatever fails from here on, the archive is dropped.
        let written = archive.storage(self.next, pieces);
        let written = written.map_err(|fault| fault.of(&self.path))?;
        if written != pending.bytes as u64 {
            let found = usize::try_from(written).unwrap_or(usize::MAX);
            return Err(unwritable(&self.path, wrong_size(pending, found)));
        }
        self.archive = Some(archive);
        self.storages.next();
        self.next += 1;
        self.write_ready()
    }

    fn write_ready(&mut self) -> Result<()> {
        while let Some(source) = self.storages.as_slice().first()
            && !source.is_pending()
        {
            let Some(mut archive) = self.archive.take() else {
                return Ok(());
            };
            let bytes = source.bytes()?;
            let written = archive.storage(self.next, std::iter::once(Ok(&bytes)));
            written.map_err(|fault| fault.of(&self.path))?;
            drop(bytes);
            self.archive = Some(archive);
            self.storages.next();
            self.next += 1;
        }
        Ok(())
    }

    /// Flushes the file to disk and puts it in place.
    ///
    /// # Errors
    /// [`Error::TorchUnwritable`] if storages are still pending or an earlier write failed, else as
    /// [`AtomicFile::commit`].
    pub fn finish(self) -> Result<()> {
        self.seal()?.place()
    }

    /// Flushes the file to disk, still under its hidden name.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn seal(self) -> Result<SealedFile> {
        let fault = match (self.archive, self.storages.len()) {
            (Some(archive), 0) => {
                let file = archive.finish();
                return file
                    .map_err(|source| write_error(&self.path, source))?
                    .seal();
            }
            (None, _) => TorchWriteFault::GivenUp,
            (Some(_), missing) => TorchWriteFault::Unfinished { missing },
        };
        Err(unwritable(&self.path, fault))
    }
}

/// Writes a value whose tensors are all there.
///
/// # Errors
/// As [`TorchWriter`].
pub fn write_torch_file(path: impl AsRef<Path>, value: &Value) -> Result<()> {
    TorchWriter::create(path, value)?.finish()
}

/// Writes the archive of a value into a stream. A storage that is still to come gets `pending`, piece
/// after piece; tells how many bytes that was.
pub(crate) fn write_archive<W: Write, P: AsRef<[u8]>>(
    out: W,
    path: &Path,
    value: &Value,
    pending: impl IntoIterator<Item = Result<P>>,
) -> Result<u64> {
    let Encoded { pickle, storages } = encode(value).map_err(|fault| unwritable(path, fault))?;
    let failing = |source| write_error(path, source);
    let mut archive = ArchiveWriter::new(out, "archive");
    archive.begin(&pickle).map_err(failing)?;
    let mut pending = Some(pending);
    let mut found = 0;
    for (key, source) in storages.iter().enumerate() {
        let written = if source.is_pending() {
            let pieces = pending.take().into_iter().flatten();
            archive.storage(key, pieces).map(|bytes| found += bytes)
        } else {
            let bytes = source.bytes()?;
            archive.storage(key, std::iter::once(Ok(&bytes))).map(drop)
        };
        written.map_err(|fault| fault.of(path))?;
    }
    archive.finish().map_err(failing)?;
    Ok(found)
}

fn wrong_size(pending: PendingStorage, found_bytes: usize) -> TorchWriteFault {
    TorchWriteFault::WrongSize {
        storage: pending.index,
        expected_bytes: pending.bytes,
        found_bytes,
    }
}

/// Why a record was not written.
enum RecordFault {
    Write(rawzip::Error),
    /// Its bytes could not be had.
    Read(Error),
}

impl RecordFault {
    fn of(self, path: &Path) -> Error {
        match self {
            Self::Write(source) => write_error(path, source),
            Self::Read(error) => error,
        }
    }
}

impl From<rawzip::Error> for RecordFault {
    fn from(error: rawzip::Error) -> Self {
        Self::Write(error)
    }
}

impl From<std::io::Error> for RecordFault {
    fn from(error: std::io::Error) -> Self {
        Self::Write(error.into())
    }
}

fn unwritable(path: &Path, fault: TorchWriteFault) -> Error {
    Error::TorchUnwritable {
        path: path.to_owned(),
        fault,
    }
}

fn write_error(path: &Path, source: rawzip::Error) -> Error {
    let source = match source.into_kind() {
        rawzip::ErrorKind::IO(source) => source,
        other => std::io::Error::other(rawzip::Error::from(other)),
    };
    Error::Write {
        path: path.to_owned(),
        source,
    }
}

/// Records below one root folder.
struct ArchiveWriter<W> {
    zip: ZipArchiveWriter<W>,
    root: String,
    /// A checksum over the checksums of all records, for the archive's own number.
    digest: crc32fast::Hasher,
    storages_digest: crc32fast::Hasher,
}

impl<W> std::fmt::Debug for ArchiveWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArchiveWriter")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl<W: Write> ArchiveWriter<W> {
    fn new(out: W, root: &str) -> Self {
        // PyTorch takes any root but an empty one.
        let root = root.replace(['/', '\\'], "_");
        Self {
            zip: ZipArchiveWriter::new(out),
            root: if root.is_empty() {
                "archive".to_owned()
            } else {
                root
            },
            digest: crc32fast::Hasher::new(),
            storages_digest: crc32fast::Hasher::new(),
        }
    }

    fn begin(&mut self, pickle: &[u8]) -> Result<(), rawzip::Error> {
        self.record("data.pkl", pickle)?;
        self.record("byteorder", b"little")
    }

    fn storage<P: AsRef<[u8]>>(
        &mut self,
        key: usize,
        pieces: impl IntoIterator<Item = Result<P>>,
    ) -> Result<u64, RecordFault> {
        self.record_in_pieces(&format!("data/{key}"), pieces)
    }

    fn record(&mut self, name: &str, bytes: &[u8]) -> Result<(), rawzip::Error> {
        match self.record_in_pieces(name, std::iter::once(Ok(bytes))) {
            Err(RecordFault::Write(error)) => Err(error),
            Err(RecordFault::Read(_)) | Ok(_) => Ok(()), // what is there need not be read
        }
    }

    fn record_in_pieces<P: AsRef<[u8]>>(
        &mut self,
        name: &str,
        pieces: impl IntoIterator<Item = Result<P>>,
    ) -> Result<u64, RecordFault> {
        let path = format!("{}/{name}", self.root);
        let begin =
            self.zip.stream_offset() + LOCAL_HEADER_BYTES + path.len() as u64 + EXTRA_HEADER_BYTES;
        let padding = begin.next_multiple_of(ALIGNMENT) - begin;
        let padding = vec![b'Z'; padding as usize];
        let (mut entry, _) = self
            .zip
            .new_file(EntryPath::verbatim(path.as_bytes()))
            .extra_field(PADDING, &padding, Header::LOCAL)?
            .start()?;
        let mut sum = crc32fast::Hasher::new();
        let mut bytes = 0;
        for piece in pieces {
            let piece = piece.map_err(RecordFault::Read)?;
            sum.update(piece.as_ref());
            entry.write_all(piece.as_ref())?;
            bytes += piece.as_ref().len() as u64;
        }
        let sum = sum.finalize();
        self.digest.update(name.as_bytes());
        self.storages_digest.update(&sum.to_le_bytes());
        entry.finish(DataDescriptorOutput::new(sum, bytes))?;
        Ok(bytes)
    }

    fn finish(mut self) -> Result<W, rawzip::Error> {
        self.record("version", VERSION)?;
        // As PyTorch has it: 40 digits, the first 20 for the names, the rest for the content.
        let names = self.digest.clone().finalize();
        let content = self.storages_digest.clone().finalize();
        let id = format!("{names:020}{content:020}");
        self.record(".data/serialization_id", id.as_bytes())?;
        self.zip.finish()
    }
}
