//! The header: from bytes to a checked list of tensors, or to the fault that names the tensor.

use std::ops::Range;

use safetensors::tensor::{Metadata as FileMetadata, TensorInfo};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{LENGTH_BYTES, MAX_HEADER_BYTES, METADATA_KEY, Metadata};
use crate::dtype::Dtype;
use crate::error::HeaderFault;
use crate::json_object::Entries;

/// What the first bytes of a git-lfs pointer are.
const GIT_LFS: &[u8] = b"version https://git-lfs";
/// What the first bytes of a zip archive are.
const ZIP: &[u8] = b"PK\x03\x04";

/// A header that describes exactly the file it was read from.
#[derive(Debug)]
pub(super) struct Header {
    /// In the order in which the data lies in the file.
    pub(super) tensors: Vec<TensorEntry>,
    pub(super) metadata: Metadata,
}

/// One tensor of a file.
#[derive(Debug)]
pub(super) struct TensorEntry {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    /// In bytes from the start of the file.
    pub(super) range: Range<usize>,
}

/// Reads and checks the header of a whole file. Every range returned lies within `file`.
pub(super) fn parse(file: &[u8]) -> Result<Header, HeaderFault> {
    let text = header_text(file)?;
    let (mut tensors, metadata) = parse_json(text)?;
    // The data may lie in another order than the header names it. A stable sort by both ends
    // puts a tensor without elements before the one that shares its place.
    tensors.sort_by_key(|tensor| (tensor.range.start, tensor.range.end));
    check_tiling(&tensors)?;

    let data_begin = LENGTH_BYTES + text.len();
    let found_bytes = file.len() - data_begin;
    let expected_bytes = tensors.last().map_or(0, |last| last.range.end);
    if expected_bytes > found_bytes {
        return Err(HeaderFault::Truncated {
            expected_bytes,
            found_bytes,
        });
    }
    if expected_bytes < found_bytes {
        return Err(HeaderFault::TrailingBytes {
            expected_bytes,
            found_bytes,
        });
    }
    for tensor in &mut tensors {
        tensor.range = tensor.range.start + data_begin..tensor.range.end + data_begin;
    }
    Ok(Header { tensors, metadata })
}

fn header_text(file: &[u8]) -> Result<&str, HeaderFault> {
    if file.starts_with(GIT_LFS) {
        return Err(HeaderFault::GitLfsPointer);
    }
    if file.starts_with(ZIP) {
        return Err(HeaderFault::ZipArchive);
    }
    let Some((length, rest)) = file.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(HeaderFault::TooShort {
            found_bytes: file.len(),
        });
    };
    let header_bytes = u64::from_le_bytes(*length);
    if header_bytes > MAX_HEADER_BYTES {
        return Err(HeaderFault::HeaderTooLong {
            header_bytes,
            limit_bytes: MAX_HEADER_BYTES,
        });
    }
    let header = usize::try_from(header_bytes)
        .ok()
        .and_then(|length| rest.get(..length));
    let header = header.ok_or(HeaderFault::HeaderPastEnd {
        header_bytes,
        file_bytes: file.len() as u64,
    })?;
    std::str::from_utf8(header).map_err(|source| HeaderFault::NotUtf8 { source })
}

/// The tensors in the order of the header, with ranges counted from the start of the data.
fn parse_json(text: &str) -> Result<(Vec<TensorEntry>, Metadata), HeaderFault> {
    let entries: Entries<Box<RawValue>> =
        serde_json::from_str(text).map_err(|source| HeaderFault::NotJson { source })?;
    if let Some(name) = entries.duplicate() {
        return Err(HeaderFault::DuplicateName {
            name: name.to_owned(),
        });
    }
    let mut metadata = Metadata::new();
    let mut tensors = Vec::with_capacity(entries.0.len());
    for (name, value) in entries.0 {
        if name == METADATA_KEY {
            metadata = parse_metadata(value.get())?;
        } else {
            tensors.push(parse_tensor(name, value.get())?);
        }
    }
    Ok((tensors, metadata))
}

fn parse_metadata(json: &str) -> Result<Metadata, HeaderFault> {
    let pairs: Option<Entries<String>> =
        serde_json::from_str(json).map_err(|source| HeaderFault::BadMetadata { source })?;
    let Some(pairs) = pairs else {
        return Ok(Metadata::new());
    };
    match pairs.duplicate() {
        Some(name) => Err(HeaderFault::DuplicateName {
            name: name.to_owned(),
        }),
        None => Ok(pairs.0.into_iter().collect()),
    }
}

/// As [`TensorInfo`], with the type still as text so that an unknown one can be named.
#[derive(Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

fn parse_tensor(name: String, json: &str) -> Result<TensorEntry, HeaderFault> {
    let raw: RawTensor = match serde_json::from_str(json) {
        Ok(raw) => raw,
        Err(source) => {
            return Err(HeaderFault::BadEntry {
                tensor: name,
                source,
            });
        }
    };
    match raw.dtype.parse() {
        Ok(dtype) => {
            let (begin, end) = raw.data_offsets;
            Ok(TensorEntry {
                name,
                dtype,
                shape: raw.shape,
                range: begin..end,
            })
        }
        Err(source) => Err(HeaderFault::UnknownDtype {
            tensor: name,
            source,
        }),
    }
}

/// Asks the `safetensors` crate whether the tensors, sorted by place, fill the data without hole
/// or overlap and have the sizes their types and shapes need.
fn check_tiling(tensors: &[TensorEntry]) -> Result<(), HeaderFault> {
    let infos = tensors.iter().filter_map(|tensor| {
        // Names are read for types of the format only.
        let info = TensorInfo {
            dtype: tensor.dtype.to_file()?,
            shape: tensor.shape.clone(),
            data_offsets: (tensor.range.start, tensor.range.end),
        };
        Some((tensor.name.clone(), info))
    });
    match FileMetadata::new(None, infos.collect()) {
        Ok(_) => Ok(()),
        Err(source) => Err(explain(tensors).unwrap_or(HeaderFault::Refused { source })),
    }
}

/// Finds the first fault in tensors that the `safetensors` crate has refused.
fn explain(tensors: &[TensorEntry]) -> Option<HeaderFault> {
    let mut previous: Option<&TensorEntry> = None;
    for tensor in tensors {
        let fault = place_fault(tensor, previous).or_else(|| size_fault(tensor));
        if fault.is_some() {
            return fault;
        }
        previous = Some(tensor);
    }
    None
}

fn place_fault(tensor: &TensorEntry, previous: Option<&TensorEntry>) -> Option<HeaderFault> {
    let name = || tensor.name.clone();
    let Range { start: begin, end } = tensor.range;
    let previous_end = previous.map_or(0, |previous| previous.range.end);
    if end < begin {
        return Some(HeaderFault::EndBeforeBegin {
            tensor: name(),
            begin,
            end,
        });
    }
    if begin > previous_end {
        return Some(HeaderFault::Hole {
            tensor: name(),
            expected: previous_end,
            found: begin,
        });
    }
    let previous = previous.filter(|_| begin < previous_end)?;
    Some(HeaderFault::Overlap {
        tensor: name(),
        begin,
        previous: previous.name.clone(),
        previous_end,
    })
}

fn size_fault(entry: &TensorEntry) -> Option<HeaderFault> {
    let (tensor, dtype, shape) = (entry.name.clone(), entry.dtype, entry.shape.clone());
    let Some(bits) = dtype.bits_of(&shape) else {
        return Some(HeaderFault::SizeOverflow {
            tensor,
            dtype,
            shape,
        });
    };
    if !bits.is_multiple_of(8) {
        return Some(HeaderFault::PartialByte {
            tensor,
            dtype,
            shape,
        });
    }
    let (expected_bytes, found_bytes) = (bits / 8, entry.range.len());
    (expected_bytes != found_bytes).then_some(HeaderFault::WrongSize {
        tensor,
        dtype,
        shape,
        expected_bytes,
        found_bytes,
    })
}

#[cfg(test)]
mod tests;
