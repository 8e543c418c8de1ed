//! From a module into a file.

use std::path::Path;

use accelerate_formats::{AtomicFile, Metadata};

use super::state_dict::state_dict;
use super::weight_set::WeightSet;
use crate::Result;
use crate::nn::{Module, require_state};

/// Writes the parameters and persistent buffers of a module as one safetensors file.
///
/// A tied tensor is written once, under its first name; the metadata lists its other names, which
/// [`Weights`](super::Weights) and the `safetensors` package know. Tensors that lie contiguous on
/// the CPU are written from where they are; others are copied one at a time. The file carries
/// `format: pt`, which other tools ask for, beside the pairs in `metadata`. It is whole or absent:
/// a file that was there before stays until the new one is complete.
///
/// # Errors
/// [`Error::Formats`](crate::Error::Formats) if the file cannot be written,
/// [`Error::Argument`](crate::Error::Argument) if a tensor has a type that safetensors files cannot
/// hold, [`Error::OnMeta`](crate::Error::OnMeta) if one has no values.
///
/// # Source
/// `save_model` of the `safetensors` package.
pub fn save_weights(
    module: &dyn Module,
    path: impl AsRef<Path>,
    metadata: &Metadata,
) -> Result<()> {
    require_state(module, "save_weights")?;
    let weights = WeightSet::new(state_dict(module)?)?;
    weights.write_safetensors(AtomicFile::create(path)?, metadata)
}
