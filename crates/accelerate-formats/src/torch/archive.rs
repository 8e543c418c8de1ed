//! The zip archive: records by name, and where their bytes lie.

use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use flate2::read::DeflateDecoder;
use rawzip::{CompressionMethod, ZipArchive};

use crate::error::TorchFault;
use crate::mmap::MappedBytes;
use crate::pickle::MAX_PICKLE_BYTES;
use crate::tensor::{Deflated, Storage};

/// The most records of an archive.
const MAX_RECORDS: usize = 1_000_000;
/// The most that deflate can pack: 1032 bytes into one.
const MAX_DEFLATE_RATIO: usize = 1032;

/// The records of an archive of `torch.save`.
pub(super) struct Archive {
    bytes: MappedBytes,
    /// By name without the root folder.
    records: HashMap<String, Record>,
    big_endian: bool,
}

struct Record {
    /// From the start of the archive.
    range: Range<usize>,
    /// Unpacked, if it is packed.
    inflated: Option<usize>,
}

impl Archive {
    pub(super) fn open(bytes: &MappedBytes) -> Result<Self, TorchFault> {
        let mut archive = Self {
            bytes: bytes.clone(),
            records: records(bytes)?,
            big_endian: false,
        };
        let has = |name| archive.records.contains_key(name);
        if !has("data.pkl") {
            return Err(TorchFault::NoPickle);
        }
        if has("constants.pkl") {
            return Err(TorchFault::TorchScript);
        }
        if has("byteorder") {
            archive.big_endian = match &*archive.small("byteorder", 64)? {
                b"little" => false,
                b"big" => true,
                other => {
                    let found = String::from_utf8_lossy(other).into_owned();
                    return Err(TorchFault::ByteOrder { found });
                }
            };
        }
        Ok(archive)
    }

    /// The pickle that describes the values.
    pub(super) fn pickle(&self) -> Result<Vec<u8>, TorchFault> {
        self.small("data.pkl", MAX_PICKLE_BYTES)
    }

    /// The bytes of a storage.
    pub(super) fn storage(&self, key: &str) -> Result<Storage, TorchFault> {
        let name = format!("data/{key}");
        let record = self.record(&name)?;
        let bytes = self.bytes.slice(record.range.clone());
        let bytes = bytes.ok_or_else(|| missing(&name))?;
        Ok(match record.inflated {
            None => Storage::of_mapped(bytes, self.big_endian),
            Some(size) => {
                let deflated = Deflated {
                    packed: bytes,
                    bytes: size,
                    record: name,
                };
                Storage::deflated(deflated, self.big_endian)
            }
        })
    }

    fn record(&self, name: &str) -> Result<&Record, TorchFault> {
        self.records.get(name).ok_or_else(|| missing(name))
    }

    /// A record that is read into memory.
    fn small(&self, name: &str, limit_bytes: usize) -> Result<Vec<u8>, TorchFault> {
        let record = self.record(name)?;
        let found_bytes = record.inflated.unwrap_or(record.range.len());
        if found_bytes > limit_bytes {
            return Err(TorchFault::RecordTooLong {
                record: name.to_owned(),
                found_bytes,
                limit_bytes,
            });
        }
        let packed = self
            .bytes
            .get(record.range.clone())
            .ok_or_else(|| missing(name))?;
        match record.inflated {
            None => Ok(packed.to_vec()),
            Some(size) => inflate(packed, size).map_err(|source| TorchFault::Inflate {
                record: name.to_owned(),
                source,
            }),
        }
    }
}

fn missing(record: &str) -> TorchFault {
    TorchFault::RecordMissing {
        record: record.to_owned(),
    }
}

/// Reads the zip directory. Headers beside the data are not trusted: they may hold zeros.
fn records(bytes: &[u8]) -> Result<HashMap<String, Record>, TorchFault> {
    let broken = |source| TorchFault::Zip { source };
    let archive = ZipArchive::from_slice(bytes).map_err(broken)?;
    let mut entries = archive.entries();
    let mut records = HashMap::new();
    let mut root: Option<Vec<u8>> = None;
    while let Some(entry) = entries.next_entry().map_err(broken)? {
        let path = entry.file_path();
        let path: &[u8] = path.as_ref();
        // Every record lies below one folder, whose name is free.
        let root = root.get_or_insert_with(|| folder(path).to_vec());
        let Some(name) = path.strip_prefix(root.as_slice()) else {
            continue;
        };
        if name.is_empty() || entry.is_dir() {
            continue;
        }
        let name = String::from_utf8_lossy(name).into_owned();
        let (begin, end) = archive
            .get_entry(entry.wayfinder())
            .map_err(broken)?
            .compressed_data_range();
        let range = begin as usize..end as usize;
        let inflated = match entry.compression_method() {
            CompressionMethod::STORE => None,
            CompressionMethod::DEFLATE => Some(inflated_size(&entry, &range)),
            other => {
                return Err(TorchFault::Compression {
                    record: name,
                    method: other.as_u16(),
                });
            }
        };
        if records.len() == MAX_RECORDS {
            return Err(TorchFault::TooManyRecords { limit: MAX_RECORDS });
        }
        if records
            .insert(name.clone(), Record { range, inflated })
            .is_some()
        {
            return Err(TorchFault::DuplicateRecord { record: name });
        }
    }
    Ok(records)
}

/// The size after unpacking: what the directory says, but no more than is possible.
fn inflated_size(entry: &rawzip::ZipFileHeaderRecord<'_>, range: &Range<usize>) -> usize {
    let most = range.len().saturating_mul(MAX_DEFLATE_RATIO);
    usize::try_from(entry.uncompressed_size_hint()).map_or(most, |stated| stated.min(most))
}

fn folder(path: &[u8]) -> &[u8] {
    let slash = path.iter().position(|&byte| byte == b'/');
    slash
        .and_then(|slash| path.get(..=slash))
        .unwrap_or_default()
}

/// Unpacks exactly `bytes` bytes.
pub(crate) fn inflate(packed: &[u8], bytes: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    out.try_reserve_exact(bytes)
        .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    let mut decoder = DeflateDecoder::new(packed).take(bytes as u64);
    decoder.read_to_end(&mut out)?;
    if out.len() != bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(out)
}

/// Storages by key, each made once.
pub(super) struct ArchiveStorages<'a> {
    archive: &'a Archive,
    made: HashMap<String, Arc<Storage>>,
}

impl<'a> ArchiveStorages<'a> {
    pub(super) fn new(archive: &'a Archive) -> Self {
        Self {
            archive,
            made: HashMap::new(),
        }
    }
}

impl super::decode::Storages for ArchiveStorages<'_> {
    fn storage(&mut self, key: &str, bytes: usize) -> Result<Arc<Storage>, TorchFault> {
        let storage = match self.made.get(key) {
            Some(made) => Arc::clone(made),
            None => {
                let new = Arc::new(self.archive.storage(key)?);
                self.made.insert(key.to_owned(), Arc::clone(&new));
                new
            }
        };
        if storage.len() < bytes {
            return Err(TorchFault::RecordTooShort {
                record: format!("data/{key}"),
                expected_bytes: bytes,
                found_bytes: storage.len(),
            });
        }
        Ok(storage)
    }
}
