//! Tensors that belong to a module and are not trained.

use std::fmt;

use accelerate_torch::{meta, storage};
use tch::{Device, Kind, Tensor};

use super::init_scope;
use super::parameter::empty_like;
use crate::{Error, Result};

/// A tensor that belongs to a module and is not trained, such as running statistics.
///
/// A clone shares the values. A persistent buffer is part of a checkpoint; one that is not can
/// be computed again from the configuration.
///
/// Within an [`InitScope`](super::InitScope) that includes buffers, a new one is where the scope
/// says.
pub struct Buffer {
    tensor: Tensor,
    persistent: bool,
}

impl Buffer {
    /// A buffer that checkpoints contain.
    pub fn new(tensor: Tensor) -> Self {
        Self {
            tensor: init_scope::buffer(tensor),
            persistent: true,
        }
    }

    /// A buffer that checkpoints leave out.
    pub fn non_persistent(tensor: Tensor) -> Self {
        Self {
            tensor: init_scope::buffer(tensor),
            persistent: false,
        }
    }

    /// The values.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Whether checkpoints contain the buffer.
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// The same number for two buffers exactly where they share their values.
    pub fn identity(&self) -> usize {
        storage::identity(&self.tensor)
    }

    /// Whether the buffer has a shape and a type but no values.
    ///
    /// # Errors
    /// None that is known.
    pub fn is_meta(&self) -> Result<bool> {
        Ok(meta::is_meta(&self.tensor)?)
    }

    /// Moves the values; every handle sees the move.
    ///
    /// # Errors
    /// [`Error::OnMeta`] if there are no values. If the device is absent or out of memory.
    pub fn to_device(&self, device: Device) -> Result<()> {
        if self.is_meta()? {
            return Err(Error::OnMeta {
                operation: "Buffer::to_device",
                tensors: vec![format!("a buffer of shape {:?}", self.tensor.size())],
            });
        }
        if self.tensor.device() == device {
            return Ok(());
        }
        self.convert(|tensor| tensor.f_to_device(device))
    }

    /// Converts the values to another type; every handle sees the change.
    ///
    /// # Errors
    /// If memory is short.
    pub fn to_kind(&self, kind: Kind) -> Result<()> {
        if self.tensor.f_kind()? == kind {
            return Ok(());
        }
        self.convert(|tensor| tensor.f_to_kind(kind))
    }

    /// A buffer with memory of undefined content in the place of this one.
    pub(super) fn materialized(&self, device: Device) -> Result<Self> {
        Ok(Self {
            tensor: empty_like(&self.tensor, device)?,
            persistent: self.persistent,
        })
    }

    fn convert(&self, convert: impl Fn(&Tensor) -> Result<Tensor, tch::TchError>) -> Result<()> {
        let values = tch::no_grad(|| convert(&self.tensor))?;
        Ok(storage::alias(&self.tensor, &values)?)
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        Self {
            tensor: self.tensor.shallow_clone(),
            persistent: self.persistent,
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Buffer");
        shown
            .field("shape", &self.tensor.size())
            .field("kind", &self.tensor.f_kind());
        shown.field("persistent", &self.persistent).finish()
    }
}
