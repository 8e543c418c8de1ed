//! The memory under tensors: release it, get it back, share it, alias it.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use tch::{Kind, Tensor};

use crate::callback::drop_box;
use crate::kind::number;
use crate::status::{check, own, raw};
use crate::{Error, Result, ffi};

/// Bytes that somebody keeps alive, such as a mapped file.
pub type BytesOwner = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A number that two handles share exactly when they are one tensor, as tied parameters are.
///
/// Valid while one of the handles lives.
#[must_use]
pub fn identity(tensor: &Tensor) -> usize {
    // SAFETY: the tensor is alive.
    unsafe { ffi::acc_tensor_identity(raw(tensor)) }
}

/// A number that two tensors share exactly when they look at one memory.
///
/// # Errors
/// If the tensor has no storage, as sparse tensors have none.
pub fn storage_identity(tensor: &Tensor) -> Result<usize> {
    let mut out = 0;
    // SAFETY: the tensor is alive and `out` is written before it is read.
    unsafe {
        check(
            "storage identity",
            ffi::acc_storage_identity(raw(tensor), &mut out),
        )?
    };
    Ok(out)
}

/// The size of the memory under a tensor in bytes; 0 once it is released.
///
/// # Errors
/// If the tensor has no storage.
pub fn storage_bytes(tensor: &Tensor) -> Result<usize> {
    let mut out = 0;
    // SAFETY: the tensor is alive and `out` is written before it is read.
    unsafe {
        check(
            "storage size",
            ffi::acc_storage_bytes(raw(tensor), &mut out),
        )?
    };
    Ok(out)
}

/// Gives the memory under a tensor back; the tensor and all its views keep their shapes.
///
/// Nobody may read them until [`refill`]. Tensors that autograd saved see the refilled
/// bytes too, since they look at the same storage.
///
/// # Errors
/// If the memory is not libtorch's own, as that of [`from_bytes_owner`] is not.
pub fn release(tensor: &Tensor) -> Result<()> {
    // SAFETY: the tensor is alive; libtorch checks accesses against the storage's size.
    unsafe {
        check(
            "storage release",
            ffi::acc_storage_reallocate(raw(tensor), 0),
        )
    }
}

/// Gives a released storage `bytes` bytes of memory with undefined content.
///
/// # Errors
/// If there is not enough memory, or the memory is not libtorch's own.
pub fn refill(tensor: &Tensor, bytes: usize) -> Result<()> {
    // SAFETY: as for `release`.
    unsafe {
        check(
            "storage refill",
            ffi::acc_storage_reallocate(raw(tensor), bytes),
        )
    }
}

/// Exchanges the memory of two tensors without copying, as a pool of buffers does.
///
/// # Errors
/// If they are on different devices, or memory is not libtorch's own.
pub fn swap(left: &Tensor, right: &Tensor) -> Result<()> {
    // SAFETY: both tensors are alive.
    unsafe { check("storage swap", ffi::acc_storage_swap(raw(left), raw(right))) }
}

/// Makes `parameter` look at the memory of `view`, in every handle on it.
///
/// Its gradient, hooks and place in a graph stay. This is `Tensor.data = view`.
///
/// # Errors
/// If the two differ in dtype or device in a way that a parameter with a gradient forbids.
pub fn alias(parameter: &Tensor, view: &Tensor) -> Result<()> {
    // SAFETY: both tensors are alive.
    unsafe {
        check(
            "storage alias",
            ffi::acc_set_data(raw(parameter), raw(view)),
        )
    }
}

/// As [`alias`], also where one of the two is on the meta device and the other has memory: so the
/// values of a parameter can go away and come back under all of its handles.
///
/// What autograd saved of the tensor before looks at the new values, or at none. `view` has no part
/// in a graph of gradients.
///
/// # Errors
/// If a tensor is not plain and dense, or is the result of an operation that records gradients.
pub fn replace(tensor: &Tensor, view: &Tensor) -> Result<()> {
    // SAFETY: both tensors are alive. libtorch refuses this between the meta device and others only
    // because other classes of tensors could stand behind those; the shim checks that both are of
    // the plain class, all of whose state is copied.
    unsafe {
        check(
            "storage replacement",
            ffi::acc_replace_data(raw(tensor), raw(view)),
        )
    }
}

/// How many tensors look at this memory, this one included.
///
/// Where the answer is 1, whoever holds the tensor may write into it unseen.
///
/// # Errors
/// If the tensor has no storage.
pub fn use_count(tensor: &Tensor) -> Result<usize> {
    let mut out = 0;
    // SAFETY: the tensor is alive and `out` is written before it is read.
    unsafe {
        check(
            "storage users",
            ffi::acc_storage_use_count(raw(tensor), &mut out),
        )?
    };
    Ok(out)
}

/// A tensor over a part of the bytes of another, which stay alive with it; not a view of it, but a
/// tensor with a storage of its own, as those have that are saved or sharded.
///
/// # Errors
/// If `base` is not contiguous on the CPU, the part leaves it, or is not aligned for the kind.
pub fn part_of_bytes(base: &Tensor, offset: usize, kind: Kind, shape: &[i64]) -> Result<Tensor> {
    let elements = shape.iter().try_fold(1usize, |all, &n| {
        usize::try_from(n).ok().and_then(|n| all.checked_mul(n))
    });
    let bytes = elements.and_then(|elements| elements.checked_mul(kind.elt_size_in_bytes()));
    if bytes.is_none() {
        return Err(Error::Argument {
            operation: "tensor over a part",
            expected: "a shape whose size in bytes is a number".to_owned(),
            found: format!("{shape:?}"),
        });
    }
    let mut out = ptr::null_mut();
    // SAFETY: the base is alive and the sizes are valid for the call; the product was checked
    // above, the range is checked in the shim, and the new tensor keeps the storage of the base.
    unsafe {
        check(
            "tensor over a part",
            ffi::acc_part_of_bytes(
                raw(base),
                offset,
                number(kind),
                shape.as_ptr(),
                shape.len(),
                &mut out,
            ),
        )?;
        Ok(own(out))
    }
}

/// A CPU tensor over bytes that somebody else owns, without a copy.
///
/// The owner lives as long as the tensor and its views. Do not write into the tensor:
/// mapped files may be read-only, and writing would change what others read.
///
/// # Errors
/// If the number of bytes does not fit the shape, or they are not aligned for the kind.
pub fn from_bytes_owner(owner: BytesOwner, kind: Kind, shape: &[i64]) -> Result<Tensor> {
    let bytes = (*owner).as_ref();
    let size = kind.elt_size_in_bytes();
    let needed = shape.iter().try_fold(size, |all, &n| {
        usize::try_from(n).ok().and_then(|n| all.checked_mul(n))
    });
    if needed != Some(bytes.len()) {
        return Err(Error::Argument {
            operation: "tensor over bytes",
            expected: format!("the bytes of shape {shape:?} and kind {kind:?}"),
            found: format!("{} bytes", bytes.len()),
        });
    }
    let data = bytes.as_ptr();
    if !data.addr().is_multiple_of(size) {
        return Err(Error::Argument {
            operation: "tensor over bytes",
            expected: format!("an address that is a multiple of {size}"),
            found: format!("address {:#x}", data.addr()),
        });
    }
    let mut out = ptr::null_mut();
    // SAFETY: `data` stays valid and in place while the boxed owner lives, since an `Arc` does not
    // move its content; C++ drops the box once, when the last view is gone or when it fails.
    unsafe {
        let owner = Box::into_raw(Box::new(owner)).cast::<c_void>();
        check(
            "tensor over bytes",
            ffi::acc_from_owner(
                data.cast(),
                owner,
                drop_box::<BytesOwner>,
                number(kind),
                shape.as_ptr(),
                shape.len(),
                &mut out,
            ),
        )?;
        Ok(own(out))
    }
}

/// Calls `read` with the bytes of a contiguous CPU tensor.
///
/// # Errors
/// If the tensor is on another device or not contiguous.
pub fn with_bytes<R>(tensor: &Tensor, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
    let mut data = ptr::null();
    let mut length = 0;
    // SAFETY: the tensor is alive and `out` values are written before they are read.
    unsafe {
        check(
            "tensor bytes",
            ffi::acc_contiguous_bytes(raw(tensor), &mut data, &mut length),
        )?;
    }
    if length == 0 {
        return Ok(read(&[]));
    }
    // SAFETY: the shim checked that these are `length` bytes of CPU memory; the borrow of the
    // tensor keeps them alive. Any byte pattern is a valid `u8`.
    Ok(read(unsafe {
        std::slice::from_raw_parts(data.cast(), length)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    #[test]
    fn released_memory_comes_back_in_every_view() -> Result<()> {
        let flat = Tensor::f_zeros([6], (Kind::Float, Device::Cpu))?;
        let view = flat.f_narrow(0, 2, 4)?.f_view([2, 2])?;
        release(&flat)?;
        assert_eq!(storage_bytes(&view)?, 0);
        refill(&flat, 24)?;
        let _ = flat.shallow_clone().f_fill_(3.0)?;
        assert_eq!(view.double_value(&[1, 1]), 3.0);
        Ok(())
    }

    #[test]
    fn swapping_exchanges_memory_not_tensors() -> Result<()> {
        let full = Tensor::from_slice(&[1f32, 2.0]);
        let empty = Tensor::f_zeros([2], (Kind::Float, Device::Cpu))?;
        release(&empty)?;
        swap(&full, &empty)?;
        assert_eq!(storage_bytes(&full)?, 0);
        assert_eq!(Vec::<f32>::try_from(&empty)?, [1.0, 2.0]);
        Ok(())
    }

    #[test]
    fn an_alias_is_seen_by_every_handle_and_keeps_the_gradient() -> Result<()> {
        let parameter = Tensor::f_zeros([2], (Kind::Float, Device::Cpu))?.set_requires_grad(true);
        let handle = parameter.shallow_clone();
        let flat = Tensor::from_slice(&[1f32, 2.0, 3.0]);
        alias(&parameter, &flat.f_narrow(0, 1, 2)?)?;
        assert_eq!(storage_identity(&handle)?, storage_identity(&flat)?);
        assert_eq!(identity(&handle), identity(&parameter));
        assert_ne!(identity(&handle), identity(&flat));
        handle.f_sum(Kind::Float)?.f_backward()?;
        assert_eq!(Vec::<f32>::try_from(parameter.grad())?, [1.0, 1.0]);
        Ok(())
    }

    #[test]
    fn values_go_away_and_come_back_under_every_handle() -> Result<()> {
        let parameter = Tensor::from_slice(&[1f32, 2.0]).set_requires_grad(true);
        let handle = parameter.shallow_clone();
        let values = parameter.f_detach()?;
        replace(&parameter, &crate::meta::like(&values)?)?;
        assert!(crate::meta::is_meta(&handle)?);
        assert!(handle.requires_grad());
        assert_eq!(handle.size(), [2]);
        replace(&parameter, &values)?;
        assert_eq!(storage_identity(&handle)?, storage_identity(&values)?);
        handle.f_mul_scalar(3.0)?.f_sum(Kind::Float)?.f_backward()?;
        assert_eq!(Vec::<f32>::try_from(parameter.grad())?, [3.0, 3.0]);
        let product = handle.f_mul_scalar(2.0)?;
        assert!(replace(&product, &values).is_err());
        assert!(replace(&parameter, &product).is_err());
        Ok(())
    }

    #[test]
    fn users_of_memory_are_counted() -> Result<()> {
        let tensor = Tensor::from_slice(&[1f32, 2.0]);
        assert_eq!(use_count(&tensor)?, 1);
        let view = tensor.f_narrow(0, 0, 1)?;
        assert_eq!(use_count(&tensor)?, 2);
        drop(view);
        assert_eq!(use_count(&tensor)?, 1);
        Ok(())
    }

    #[test]
    fn a_part_of_bytes_has_a_storage_of_its_own() -> Result<()> {
        let bytes: Vec<u8> = [1f32, 2.0, 3.0]
            .iter()
            .flat_map(|v| v.to_ne_bytes())
            .collect();
        let base = Tensor::from_slice(&bytes);
        let part = part_of_bytes(&base, 4, Kind::Float, &[2, 1])?;
        assert_eq!(storage_bytes(&part)?, 8);
        let _ = part.shallow_clone().f_fill_(7.0)?;
        assert_eq!(
            part_of_bytes(&base, 0, Kind::Float, &[3])?.double_value(&[2]),
            7.0
        );
        drop(base);
        assert_eq!(part.double_value(&[1, 0]), 7.0);
        assert!(part_of_bytes(&part, 4, Kind::Float, &[2]).is_err());
        assert!(part_of_bytes(&part, 2, Kind::Float, &[1]).is_err());
        assert!(part_of_bytes(&part, 0, Kind::Float, &[-1]).is_err());
        Ok(())
    }

    #[test]
    fn the_owner_of_shared_bytes_lives_as_long_as_the_last_view() -> Result<()> {
        let bytes: Vec<u8> = [1f32, 2.0].iter().flat_map(|v| v.to_ne_bytes()).collect();
        let owner: BytesOwner = Arc::new(bytes);
        let weak = Arc::downgrade(&owner);
        let tensor = from_bytes_owner(owner, Kind::Float, &[2])?;
        let view = tensor.f_narrow(0, 1, 1)?;
        drop(tensor);
        assert!(weak.upgrade().is_some());
        assert_eq!(view.double_value(&[0]), 2.0);
        drop(view);
        assert!(weak.upgrade().is_none());
        Ok(())
    }

    #[test]
    fn bytes_that_do_not_fit_are_refused() {
        let owner: BytesOwner = Arc::new(vec![0u8; 7]);
        let error = from_bytes_owner(owner, Kind::Float, &[2]).unwrap_err();
        assert!(error.to_string().contains("found 7 bytes"), "{error}");
    }

    #[test]
    fn foreign_memory_is_not_released() -> Result<()> {
        let owner: BytesOwner = Arc::new(vec![0u8; 8]);
        let tensor = from_bytes_owner(owner, Kind::Int64, &[1])?;
        assert!(
            release(&tensor)
                .unwrap_err()
                .to_string()
                .contains("foreign memory")
        );
        Ok(())
    }

    #[test]
    fn bytes_are_those_of_the_tensor() -> Result<()> {
        let tensor = Tensor::from_slice(&[1u8, 2, 3]);
        assert_eq!(with_bytes(&tensor, <[u8]>::to_vec)?, [1, 2, 3]);
        let empty = Tensor::f_zeros([0], (Kind::Float, Device::Cpu))?;
        assert_eq!(with_bytes(&empty, <[u8]>::len)?, 0);
        let strided = Tensor::f_zeros([2, 2], (Kind::Float, Device::Cpu))?.f_tr()?;
        assert!(with_bytes(&strided.f_narrow(0, 0, 1)?, <[u8]>::len).is_err());
        Ok(())
    }
}
