//! From a module into a file.

use std::collections::HashMap;
use std::path::Path;

use accelerate_formats::Metadata;
use accelerate_formats::safetensors::{SafetensorsWriter, TensorHeader};
use accelerate_torch::storage;
use tch::{Device, Tensor};

use super::dtype::dtype_of;
use crate::nn::{Module, require_state};
use crate::{Error, Result};

/// Writes the parameters and persistent buffers of a module as one safetensors file.
///
/// A tied parameter is written once, under its first name. Tensors that lie contiguous on the
/// CPU are written from where they are; others are copied one at a time. The file carries
/// `format: pt`, which other tools ask for, beside the pairs in `metadata`. It is whole or absent:
/// a file that was there before stays until the new one is complete.
///
/// # Errors
/// [`Error::Formats`] if the file cannot be written, [`Error::Argument`] if a tensor has a type
/// that safetensors files cannot hold, [`Error::OnMeta`] if one has no values.
///
/// # Source
/// `save_model` of the `safetensors` package.
pub fn save_weights(
    module: &dyn Module,
    path: impl AsRef<Path>,
    metadata: &Metadata,
) -> Result<()> {
    require_state(module, "save_weights")?;
    let metadata = metadata.clone().with("format", "pt");
    let tensors = tensors(module);
    let headers = tensors
        .iter()
        .map(|(name, tensor)| header(name, tensor))
        .collect::<Result<Vec<_>>>()?;
    let by_name: HashMap<&str, &Tensor> = tensors
        .iter()
        .map(|(name, tensor)| (name.as_str(), *tensor))
        .collect();
    let mut writer = SafetensorsWriter::create(path, headers, &metadata)?;
    while let Some(name) = writer.pending().map(|header| header.name.clone()) {
        let Some(tensor) = by_name.get(name.as_str()) else {
            break;
        };
        let plain = tch::no_grad(|| -> Result<Tensor> {
            Ok(tensor
                .f_detach()?
                .f_to_device(Device::Cpu)?
                .f_contiguous()?)
        })?;
        storage::with_bytes(&plain, |bytes| writer.write(&name, bytes))??;
    }
    Ok(writer.finish()?)
}

fn tensors(module: &dyn Module) -> Vec<(String, &Tensor)> {
    let parameters = module.named_parameters().into_iter();
    let buffers = module
        .named_buffers()
        .into_iter()
        .filter(|(_, buffer)| buffer.is_persistent());
    parameters
        .map(|(name, parameter)| (name, parameter.tensor()))
        .chain(buffers.map(|(name, buffer)| (name, buffer.tensor())))
        .collect()
}

fn header(name: &str, tensor: &Tensor) -> Result<TensorHeader> {
    let kind = tensor.f_kind()?;
    let dtype = dtype_of(kind).ok_or_else(|| Error::Argument {
        operation: "save_weights",
        expected: "data types that safetensors files can hold".to_owned(),
        found: format!("`{kind:?}` in `{name}`"),
    })?;
    let shape = tensor
        .size()
        .into_iter()
        .map(|length| usize::try_from(length).unwrap_or(0))
        .collect();
    Ok(TensorHeader {
        name: name.to_owned(),
        dtype,
        shape,
    })
}
