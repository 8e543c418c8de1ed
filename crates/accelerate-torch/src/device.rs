//! Devices and dtypes, as far as `tch` does not tell.

use std::fmt;

use tch::{Device, Tensor};

use crate::status::{append, check, lossy, raw, target};
use crate::{Error, Result, ffi};

/// Where a tensor lives, with the devices that `tch` has no name for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// Main memory.
    Cpu,
    /// A CUDA device by index.
    Cuda(usize),
    /// Apple's GPU.
    Mps,
    /// Nowhere: only shape and dtype.
    Meta,
    /// Another device type of libtorch, by its number there.
    Other(i32),
}

const CPU: i32 = 0;
const CUDA: i32 = 1;
const MPS: i32 = 13;
const META: i32 = 14;

impl Place {
    fn from_raw(device_type: i32, index: i32) -> Self {
        match device_type {
            CPU => Self::Cpu,
            CUDA => Self::Cuda(usize::try_from(index).unwrap_or(0)),
            MPS => Self::Mps,
            META => Self::Meta,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
            Self::Mps => f.write_str("mps"),
            Self::Meta => f.write_str("meta"),
            Self::Other(number) => write!(f, "device type {number}"),
        }
    }
}

/// The numbers that libtorch knows a device by.
pub(crate) fn raw_device(device: Device) -> Result<(i32, i32)> {
    match device {
        Device::Cpu => Ok((CPU, -1)),
        Device::Mps => Ok((MPS, -1)),
        Device::Cuda(index) => {
            let index = i32::try_from(index).map_err(|_| Error::Argument {
                operation: "device",
                expected: "a device index below 2^31".to_owned(),
                found: index.to_string(),
            })?;
            Ok((CUDA, index))
        }
        other => Err(Error::Argument {
            operation: "device",
            expected: "a CPU, CUDA or MPS device".to_owned(),
            found: format!("{other:?}"),
        }),
    }
}

/// Where a tensor lives.
///
/// # Errors
/// If libtorch refuses, as for an undefined tensor.
pub fn place(tensor: &Tensor) -> Result<Place> {
    let (mut device_type, mut index) = (0, 0);
    // SAFETY: the tensor is alive and both numbers are written before they are read.
    unsafe {
        check(
            "device",
            ffi::acc_device(raw(tensor), &mut device_type, &mut index),
        )?
    };
    Ok(Place::from_raw(device_type, index))
}

/// The name of a tensor's dtype as libtorch spells it, such as `Float` or `UInt16`.
///
/// Works for every dtype, also those without a [`tch::Kind`].
///
/// # Errors
/// If libtorch refuses, as for an undefined tensor.
pub fn kind_name(tensor: &Tensor) -> Result<String> {
    let mut name = Vec::new();
    // SAFETY: the tensor is alive; the sink gets the vector it expects.
    unsafe {
        check(
            "dtype",
            ffi::acc_kind_name(raw(tensor), append, target(&mut name)),
        )?
    };
    Ok(lossy(name))
}

/// How many devices of this kind the process can use; 0 where libtorch was built without them.
///
/// The index of `device` is ignored.
#[must_use]
pub fn count(device: Device) -> usize {
    raw_device(device).map_or(0, |(device_type, _)| {
        // SAFETY: no pointer is involved.
        usize::try_from(unsafe { ffi::acc_device_count(device_type) }).unwrap_or(0)
    })
}

/// Makes `device` the current one of its kind for this thread.
///
/// # Errors
/// If there is no such device.
pub fn set_current(device: Device) -> Result<()> {
    let (device_type, index) = raw_device(device)?;
    // SAFETY: no pointer is involved.
    unsafe {
        check(
            "current device",
            ffi::acc_set_current_device(device_type, index),
        )
    }
}

/// Waits until everything queued on `device` is done; at once on the CPU.
///
/// # Errors
/// Whatever a queued kernel failed with.
pub fn synchronize(device: Device) -> Result<()> {
    let (device_type, index) = raw_device(device)?;
    // SAFETY: no pointer is involved.
    unsafe {
        check(
            "device synchronisation",
            ffi::acc_synchronize(device_type, index),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    #[test]
    fn tells_place_and_dtype() -> Result<()> {
        let tensor = Tensor::f_zeros([1], (Kind::BFloat16, Device::Cpu))?;
        assert_eq!(place(&tensor)?, Place::Cpu);
        assert_eq!(kind_name(&tensor)?, "BFloat16");
        assert_eq!(count(Device::Cpu), 1);
        synchronize(Device::Cpu)
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        if count(Device::Cuda(0)) == 0 {
            assert!(set_current(Device::Cuda(0)).is_err());
        }
    }
}
