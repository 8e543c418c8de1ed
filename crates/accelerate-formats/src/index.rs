//! Which of several files holds which tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::{Error, IndexFault, Result};
use crate::json_object::Entries;
use crate::mmap::MappedFile;

/// The longest index read, in bytes: the limit of a safetensors header, which says more.
const MAX_INDEX_BYTES: u64 = 100_000_000;

/// The index of weights that are spread over several files: `model.safetensors.index.json`.
///
/// Reading it opens none of the files; [`Weights`](crate::Weights) does that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardIndex {
    path: PathBuf,
    weight_map: BTreeMap<String, String>,
    total_size: Option<u64>,
}

impl ShardIndex {
    /// Reads the index at `path`.
    ///
    /// Two forms are known: an object with `weight_map` (and often `metadata.total_size`), and an
    /// object that is itself the map from tensor name to file name.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::NotAFile`] or [`Error::Map`] if it cannot be read,
    /// [`Error::Index`] with the fault if it is no index or names files outside its folder.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let file = MappedFile::open(path)?;
        let path = file.path().to_owned();
        match parse(&file) {
            Ok((weight_map, total_size)) => Ok(Self {
                path,
                weight_map,
                total_size,
            }),
            Err(fault) => Err(Error::Index { path, fault }),
        }
    }

    /// Where the index was read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of every tensor and of the file that holds it, sorted by tensor.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.weight_map
            .iter()
            .map(|(tensor, shard)| (tensor.as_str(), shard.as_str()))
    }

    /// The name of the file that holds this tensor.
    pub fn shard_of(&self, tensor: &str) -> Option<&str> {
        self.weight_map.get(tensor).map(String::as_str)
    }

    /// The names of all files, each once, sorted.
    pub fn shards(&self) -> BTreeSet<&str> {
        self.weight_map.values().map(String::as_str).collect()
    }

    /// The bytes of all tensors as the index states them.
    ///
    /// Only a hint: published indexes count shared tensors twice, or are older than their files.
    /// [`Weights::total_bytes`](crate::Weights::total_bytes) counts what is there.
    pub fn total_size(&self) -> Option<u64> {
        self.total_size
    }
}

type Parsed = (BTreeMap<String, String>, Option<u64>);

fn parse(bytes: &[u8]) -> Result<Parsed, IndexFault> {
    let found_bytes = bytes.len() as u64;
    if found_bytes > MAX_INDEX_BYTES {
        return Err(IndexFault::TooLong {
            found_bytes,
            limit_bytes: MAX_INDEX_BYTES,
        });
    }
    let (map, total_size) = split(bytes).map_err(|source| IndexFault::NotAnIndex { source })?;
    if let Some(tensor) = map.duplicate() {
        return Err(IndexFault::DuplicateName {
            tensor: tensor.to_owned(),
        });
    }
    if let Some((tensor, shard)) = map.0.iter().find(|(_, shard)| !is_plain_name(shard)) {
        return Err(IndexFault::ShardName {
            tensor: tensor.clone(),
            shard: shard.clone(),
        });
    }
    if map.0.is_empty() {
        return Err(IndexFault::Empty);
    }
    Ok((map.0.into_iter().collect(), total_size))
}

/// The map and the stated size of either form.
fn split(bytes: &[u8]) -> serde_json::Result<(Entries<String>, Option<u64>)> {
    let object: Entries<Box<RawValue>> = serde_json::from_slice(bytes)?;
    let field = |name: &str| {
        object
            .0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.get())
    };
    let Some(map) = field("weight_map") else {
        return Ok((serde_json::from_slice(bytes)?, None));
    };
    let total_size = field("metadata").and_then(stated_size);
    Ok((serde_json::from_str(map)?, total_size))
}

/// `total_size` where it is a whole number; some tools write `1e9` or `1000.0`.
fn stated_size(metadata: &str) -> Option<u64> {
    let metadata: Value = serde_json::from_str(metadata).ok()?;
    let size = metadata.get("total_size")?;
    size.as_u64().or_else(|| {
        let size = size
            .as_f64()
            .filter(|size| size.fract() == 0.0 && (0.0..1e18).contains(size))?;
        Some(size as u64)
    })
}

/// Whether joining the name to a folder can only give a file in that folder, on any system.
pub(crate) fn is_plain_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', ':', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(json: &str) -> IndexFault {
        parse(json.as_bytes()).unwrap_err()
    }

    #[test]
    fn both_forms_are_read() {
        let whole = r#"{"metadata":{"total_size":12},"weight_map":{"b":"2.safetensors","a":"1.safetensors"}}"#;
        let (map, size) = parse(whole.as_bytes()).unwrap();
        assert_eq!(map["a"], "1.safetensors");
        assert_eq!(map["b"], "2.safetensors");
        assert_eq!(size, Some(12));
        let (flat, size) = parse(br#"{"b":"2.safetensors","a":"1.safetensors"}"#).unwrap();
        assert_eq!((flat, size), (map, None));
    }

    #[test]
    fn an_odd_size_is_no_reason_to_refuse() {
        let size = |json: &str| {
            let text = format!(r#"{{"metadata":{json},"weight_map":{{"a":"f"}}}}"#);
            parse(text.as_bytes()).unwrap().1
        };
        assert_eq!(size(r#"{"total_size":1e9}"#), Some(1_000_000_000));
        assert_eq!(size(r#"{"total_size":-1}"#), None);
        assert_eq!(size(r#"{"total_size":"many"}"#), None);
        assert_eq!(size("null"), None);
    }

    #[test]
    fn names_that_lead_out_of_the_folder_are_refused() {
        for shard in [
            "../up",
            "/etc/passwd",
            "sub/file",
            r"sub\\file",
            "..",
            ".",
            "",
            "C:file",
            r"a\u0000b",
        ] {
            let fault = fault(&format!(
                r#"{{"weight_map":{{"ok":"fine","bad":"{shard}"}}}}"#
            ));
            assert!(
                matches!(&fault, IndexFault::ShardName { tensor, .. } if tensor == "bad"),
                "{shard}: {fault}"
            );
        }
        assert!(is_plain_name("model..v2-00001-of-00002.safetensors"));
    }

    #[test]
    fn what_is_no_index_is_refused() {
        for json in [
            "",
            "[]",
            "{",
            r#"{"weight_map":3}"#,
            r#"{"weight_map":{"a":1}}"#,
            r#"{"a":{}}"#,
        ] {
            assert!(
                matches!(fault(json), IndexFault::NotAnIndex { .. }),
                "{json}"
            );
        }
        assert!(matches!(fault(r#"{"weight_map":{}}"#), IndexFault::Empty));
        assert!(matches!(fault("{}"), IndexFault::Empty));
        let twice = fault(r#"{"weight_map":{"a":"x","a":"y"}}"#);
        assert!(
            matches!(&twice, IndexFault::DuplicateName { tensor } if tensor == "a"),
            "{twice}"
        );
    }
}
