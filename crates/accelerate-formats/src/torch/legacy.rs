//! PyTorch's format before 1.6: five pickles one after another, then the storages.
//!
//! The pickles are a magic number, the version, facts about the machine, the value, and the keys of
//! the storages in the order in which they follow. Each storage is the number of its elements as 8
//! bytes, then the elements. PyTorch writes numbers little-endian here on every machine.

use std::collections::HashMap;
use std::sync::Arc;

use super::decode::{Decoder, Storages, Strangers, storage_id};
use crate::error::TorchFault;
use crate::mmap::MappedBytes;
use crate::pickle::{self, Graph, Node};
use crate::tensor::Storage;
use crate::value::Value;

/// The pickle of the magic number, which every such file begins with.
pub(super) const MAGIC: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
/// The only version of the format.
const VERSION: i128 = 1001;

type Result<T> = std::result::Result<T, TorchFault>;

pub(super) fn read(bytes: &MappedBytes, strangers: Strangers) -> Result<Value> {
    let allow = |module: &str, name: &str| strangers.allow(module, name);
    let mut at = MAGIC.len();
    let mut next = || -> Result<Graph<'_>> {
        let (graph, length) = pickle::read(bytes.get(at..).unwrap_or_default(), &allow)?;
        at += length;
        Ok(graph)
    };
    let version = next()?;
    if version.int(version.root()) != Some(VERSION) {
        return Err(TorchFault::Legacy {
            what: "the version",
        });
    }
    // Sizes of C's types on the machine that wrote the file; PyTorch does not use them either.
    next()?;
    let graph = next()?;
    let keys = next()?;
    let mut storages = locate(bytes, at, &graph, &keys)?;
    Decoder::new(&graph, &mut storages, strangers).root()
}

/// Finds each storage. How long one is follows from the type that tensors name it with.
fn locate(
    bytes: &MappedBytes,
    mut at: usize,
    graph: &Graph<'_>,
    keys: &Graph<'_>,
) -> Result<LegacyStorages> {
    let damaged = || TorchFault::Legacy {
        what: "the list of storages",
    };
    let mut sizes = HashMap::new();
    for node in graph.nodes() {
        if let Node::Persistent(id) = node {
            let id = storage_id(graph, *id)?;
            let size = id.dtype.map_or(1, |dtype| dtype.size_in_bits() / 8);
            sizes.insert(id.key, size);
        }
    }
    let mut made = HashMap::new();
    for &key in keys.items(keys.root()).ok_or_else(damaged)? {
        let key = keys.text(key).ok_or_else(damaged)?;
        let size = *sizes.get(key).ok_or_else(damaged)?;
        let count = bytes.get(at..).and_then(<[u8]>::first_chunk);
        let count = usize::try_from(i64::from_le_bytes(*count.ok_or_else(damaged)?));
        let length = count.ok().and_then(|count| count.checked_mul(size));
        let begin = at + size_of::<i64>();
        let end = length.and_then(|length| begin.checked_add(length));
        let storage = end.and_then(|end| bytes.slice(begin..end));
        let storage = storage.ok_or(TorchFault::Legacy { what: "the end" })?;
        at = begin + storage.len();
        if made
            .insert(key.to_owned(), Arc::new(Storage::of_mapped(storage, false)))
            .is_some()
        {
            return Err(damaged());
        }
    }
    Ok(LegacyStorages { made })
}

struct LegacyStorages {
    made: HashMap<String, Arc<Storage>>,
}

impl Storages for LegacyStorages {
    fn storage(&mut self, key: &str, bytes: usize) -> Result<Arc<Storage>> {
        let storage = self
            .made
            .get(key)
            .ok_or_else(|| TorchFault::RecordMissing {
                record: key.to_owned(),
            })?;
        if storage.len() < bytes {
            return Err(TorchFault::RecordTooShort {
                record: key.to_owned(),
                expected_bytes: bytes,
                found_bytes: storage.len(),
            });
        }
        Ok(Arc::clone(storage))
    }
}
