//! The values of one weight while nobody computes with it.

use accelerate_formats::{MappedBytes, StoredTensor};
use tch::{Device, Kind, Tensor};

use crate::Result;
use crate::checkpoint::{stored_type, stored_values};

/// Where a weight waits. It can be given to another thread.
#[derive(Debug)]
pub(super) enum Source {
    /// In CPU memory.
    Memory(Tensor),
    /// In a file.
    File(StoredTensor),
}

/// As what a weight is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) kind: Kind,
    pub(super) device: Device,
}

impl Source {
    /// Another handle on the same values.
    pub(super) fn share(&self) -> Self {
        match self {
            Self::Memory(tensor) => Self::Memory(tensor.shallow_clone()),
            Self::File(stored) => Self::File(stored.clone()),
        }
    }

    /// The type the values are kept in.
    pub(super) fn kind(&self, name: &str) -> Result<Kind> {
        match self {
            Self::Memory(tensor) => Ok(tensor.f_kind()?),
            Self::File(stored) => Ok(stored_type(name, stored)?.0),
        }
    }

    /// The shape of the values.
    pub(super) fn shape(&self, name: &str) -> Result<Vec<i64>> {
        match self {
            Self::Memory(tensor) => Ok(tensor.size()),
            Self::File(stored) => Ok(stored_type(name, stored)?.1),
        }
    }

    /// The part of a file that holds the values.
    pub(super) fn mapped(&self) -> Option<&MappedBytes> {
        match self {
            Self::Memory(_) => None,
            Self::File(stored) => stored.storage().mapped(),
        }
    }

    /// The values as they are kept, not copied where they lie in a row. Not to be written into.
    pub(super) fn values(&self, name: &str) -> Result<Tensor> {
        match self {
            Self::Memory(tensor) => Ok(tensor.shallow_clone()),
            Self::File(stored) => stored_values(name, stored),
        }
    }

    /// Whether the values can be computed with where they lie.
    pub(super) fn is_in_place(&self, name: &str, wanted: Wanted) -> Result<bool> {
        if wanted.device != Device::Cpu || self.kind(name)? != wanted.kind {
            return Ok(false);
        }
        Ok(match self {
            Self::Memory(_) => true,
            Self::File(stored) => {
                let storage = stored.storage();
                let whole = !storage.is_deflated() && !storage.is_big_endian();
                stored.is_contiguous()
                    && whole
                    && stored
                        .to_owner()?
                        .is_aligned_to(wanted.kind.elt_size_in_bytes())
            }
        })
    }

    /// The values as they are wanted; those that are kept so are not copied.
    ///
    /// `buffer`, of the same type and shape and on the same device, is written into if there is one.
    pub(super) fn made(
        &self,
        name: &str,
        wanted: Wanted,
        buffer: Option<Tensor>,
    ) -> Result<Tensor> {
        tch::no_grad(|| {
            let kept = self.values(name)?;
            if let Some(mut buffer) = buffer {
                buffer.f_copy_(&kept)?;
                return Ok(buffer);
            }
            if matches!(wanted.device, Device::Cuda(_)) {
                return to_accelerator(&kept, wanted);
            }
            let moved = kept.f_to_device(wanted.device)?;
            Ok(moved.f_to_kind(wanted.kind)?)
        })
    }

    /// The values in memory of their own, which may be written into.
    pub(super) fn copied(&self, name: &str, wanted: Wanted) -> Result<Tensor> {
        tch::no_grad(|| {
            let kept = self.values(name)?;
            let mut own = Tensor::f_empty(kept.size(), (wanted.kind, wanted.device))?;
            own.f_copy_(&kept)?;
            Ok(own)
        })
    }
}

/// Over pinned memory, from which a device reads by itself. What pins it keeps blocks for the next
/// weights, and none is given away before the device has read it.
fn to_accelerator(kept: &Tensor, wanted: Wanted) -> Result<Tensor> {
    let pinned = if kept.device() == Device::Cpu && kept.numel() > 0 {
        kept.f_pin_memory(wanted.device)?
    } else {
        kept.shallow_clone()
    };
    let moved = pinned.f_to_device_(wanted.device, pinned.f_kind()?, true, false)?;
    Ok(moved.f_to_kind(wanted.kind)?)
}

/// The bytes of the elements of a tensor.
pub(super) fn tensor_bytes(tensor: &Tensor) -> u64 {
    let size = tensor.f_kind().map_or(0, |kind| kind.elt_size_in_bytes());
    (tensor.numel() * size) as u64
}
