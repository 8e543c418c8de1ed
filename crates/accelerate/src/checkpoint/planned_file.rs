//! One file of a checkpoint before it is written.

use std::io::Write as _;
use std::path::Path;

use accelerate_formats::manifest::ManifestFile;
use accelerate_formats::{Metadata, TorchWriter, Value};

use super::copies::CopyBuffers;
use super::folder::io;
use super::hashed_file;
use super::torch_state::TorchState;
use super::weight_set::WeightSet;
use crate::Result;

/// A name and a content. It can be written on any thread.
#[derive(Debug)]
pub(super) struct PlannedFile {
    name: String,
    content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    /// Weights as safetensors.
    Safetensors(WeightSet),
    /// Weights as a file of `torch.save`.
    TorchWeights(WeightSet),
    /// A value as a file of `torch.save`, with the tensors that were described in it.
    Torch(TorchState, Value),
    /// Anything else.
    Bytes(Vec<u8>),
}

impl PlannedFile {
    pub(super) fn new(name: impl Into<String>, content: Content) -> Self {
        Self {
            name: name.into(),
            content,
        }
    }

    /// A value without tensors in libtorch.
    pub(super) fn of_value(name: impl Into<String>, value: Value) -> Self {
        Self::new(name, Content::Torch(TorchState::default(), value))
    }

    /// Puts copies in the place of all tensors, so that these may change.
    pub(super) fn copy_tensors(&mut self, buffers: &mut CopyBuffers) -> Result<()> {
        let mut copy = |tensor: &mut tch::Tensor| -> Result<()> {
            *tensor = buffers.copy(tensor)?;
            Ok(())
        };
        match &mut self.content {
            Content::Safetensors(weights) | Content::TorchWeights(weights) => {
                weights.tensors_mut().try_for_each(&mut copy)
            }
            Content::Torch(state, _) => state.tensors_mut().iter_mut().try_for_each(&mut copy),
            Content::Bytes(_) => Ok(()),
        }
    }

    /// Writes the file into `folder`, down to the disk.
    fn write(&self, folder: &Path) -> Result<ManifestFile> {
        let (mut file, digest) = hashed_file::begin(folder, &self.name)?;
        match &self.content {
            Content::Safetensors(weights) => {
                weights.write_safetensors(file, &Metadata::default())?;
            }
            Content::TorchWeights(weights) => weights.write_torch(file)?,
            Content::Torch(state, value) => state.write(TorchWriter::into_file(file, value)?)?,
            Content::Bytes(bytes) => {
                let written = file.write_all(bytes);
                written.map_err(|source| io("write", &folder.join(&self.name), source))?;
                file.commit()?;
            }
        }
        Ok(digest.describe(&self.name))
    }
}

/// Writes files one after another, and describes them.
pub(super) fn write_all(files: &[PlannedFile], folder: &Path) -> Result<Vec<ManifestFile>> {
    files.iter().map(|file| file.write(folder)).collect()
}
