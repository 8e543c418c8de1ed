//! Tensors that belong to a module and are not trained.

use std::fmt;

use accelerate_torch::storage;
use tch::{Device, Tensor};

use super::parameter::move_in_place;
use crate::Result;

/// A tensor that belongs to a module and is not trained, such as running statistics.
///
/// A clone shares the values. A persistent buffer is part of a checkpoint; one that is not can
/// be computed again from the configuration.
pub struct Buffer {
    tensor: Tensor,
    persistent: bool,
}

impl Buffer {
    /// A buffer that checkpoints contain.
    pub fn new(tensor: Tensor) -> Self {
        Self {
            tensor,
            persistent: true,
        }
    }

    /// A buffer that checkpoints leave out.
    pub fn non_persistent(tensor: Tensor) -> Self {
        Self {
            tensor,
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

    /// Moves the values; every handle sees the move.
    ///
    /// # Errors
    /// If the device is absent or out of memory.
    pub fn to_device(&self, device: Device) -> Result<()> {
        if self.tensor.device() == device {
            return Ok(());
        }
        move_in_place(&self.tensor, device)
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
