//! One safetensors file: 8 bytes with the length of the header, the header as JSON, the data.
//!
//! The `safetensors` crate decides what a sound header is. Around it this module adds what a
//! user needs: faults that name the file, the tensor and the remedy, refusal of names that stand
//! twice, bytes that outlive the reader, and files that are whole or absent and, for the same
//! tensors, the same to the last byte.

mod file;
mod header;
mod metadata;
mod write;

pub(crate) use file::nearest;
pub use file::{SafetensorsFile, TensorSlice};
pub use metadata::Metadata;
pub use write::{SafetensorsWriter, TensorData, TensorHeader, write_file};

/// The key of the header that holds no tensor.
const METADATA_KEY: &str = "__metadata__";

/// The longest header the format allows, in bytes.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The bytes before the header, which hold its length.
const LENGTH_BYTES: usize = size_of::<u64>();
