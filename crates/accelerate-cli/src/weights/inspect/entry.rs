//! One tensor of a listing.

use std::path::Path;

use accelerate_formats::{StoredTensor, distributed::ShardedTensor};
use serde::Serialize;

/// A tensor, and where it lies.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) dtype: &'static str,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: u64,
    pub(super) file: Option<String>,
    pub(super) offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) strides: Option<Vec<usize>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<EntryPart>,
}

/// A part of a tensor.
#[derive(Debug, Clone, Serialize)]
pub(super) struct EntryPart {
    pub(super) file: String,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) begin: Vec<usize>,
    pub(super) shape: Vec<usize>,
}

impl Entry {
    pub(super) fn of_stored(name: &str, tensor: &StoredTensor) -> Self {
        let storage = tensor.storage();
        let mapped = storage.mapped();
        let begin = mapped.filter(|_| !storage.is_deflated()).map(|mapped| {
            let within = tensor.offset() * tensor.dtype().size_in_bits() / 8;
            (mapped.range().start + within) as u64
        });
        Self {
            name: name.to_owned(),
            dtype: tensor.dtype().name(),
            shape: tensor.shape().to_vec(),
            bytes: tensor.byte_len() as u64,
            file: mapped.map(|mapped| file_name(mapped.file().path())),
            offset: begin,
            strides: (!tensor.is_contiguous()).then(|| tensor.strides().to_vec()),
            parts: Vec::new(),
        }
    }

    pub(super) fn of_sharded(tensor: &ShardedTensor) -> Self {
        let bits = tensor.dtype().bits_of(tensor.shape()).unwrap_or(0);
        let parts: Vec<EntryPart> = tensor
            .chunks()
            .iter()
            .map(|chunk| EntryPart {
                file: chunk.file().to_owned(),
                offset: chunk.file_offset(),
                bytes: chunk.stream_bytes(),
                begin: chunk.offsets().to_vec(),
                shape: chunk.sizes().to_vec(),
            })
            .collect();
        let mut files: Vec<&str> = parts.iter().map(|part| part.file.as_str()).collect();
        files.dedup();
        let file = match files.as_slice() {
            [only] => Some((*only).to_owned()),
            _ => None,
        };
        Self {
            name: tensor.name().to_owned(),
            dtype: tensor.dtype().name(),
            shape: tensor.shape().to_vec(),
            bytes: bits as u64 / 8,
            file,
            offset: None,
            strides: None,
            parts,
        }
    }

    pub(super) fn elements(&self) -> u64 {
        let shape = self.shape.iter();
        shape.fold(1, |all, &length| all.saturating_mul(length as u64))
    }
}

pub(super) fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}
