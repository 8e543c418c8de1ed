//! Tensors with a shape and a dtype but no memory.

use std::ptr;

use tch::{Kind, Tensor};

use crate::device::{Place, place};
use crate::kind::number;
use crate::status::{check, own, raw};
use crate::{Result, ffi};

const META: i32 = 14;

/// A tensor on the meta device: operations on it compute shapes and touch no memory.
///
/// # Shapes
/// - output: `shape`
///
/// # Errors
/// If a size is negative.
pub fn empty(shape: &[i64], kind: Kind) -> Result<Tensor> {
    let mut out = ptr::null_mut();
    // SAFETY: the sizes are valid for the call; the shim gives the new tensor up.
    unsafe {
        check(
            "empty meta tensor",
            ffi::acc_empty(
                shape.as_ptr(),
                shape.len(),
                number(kind),
                META,
                -1,
                &mut out,
            ),
        )?;
        Ok(own(out))
    }
}

/// The shape and dtype of a tensor, without its data.
///
/// # Errors
/// If libtorch cannot represent it on the meta device.
pub fn like(tensor: &Tensor) -> Result<Tensor> {
    let mut out = ptr::null_mut();
    // SAFETY: the tensor is alive; the shim gives the new one up.
    unsafe {
        check("meta tensor", ffi::acc_to_meta(raw(tensor), &mut out))?;
        Ok(own(out))
    }
}

/// Whether a tensor has no memory.
///
/// # Errors
/// If the tensor is undefined.
pub fn is_meta(tensor: &Tensor) -> Result<bool> {
    Ok(place(tensor)? == Place::Meta)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_thousand_million_parameters_need_no_memory() -> Result<()> {
        let weight = empty(&[1_000_000, 100_000], Kind::Float)?;
        assert!(is_meta(&weight)?);
        assert_eq!(weight.numel(), 100_000_000_000);
        let product = weight.f_matmul(&empty(&[100_000, 3], Kind::Float)?)?;
        assert_eq!(product.size(), [1_000_000, 3]);
        assert!(is_meta(&product)?);
        let like = like(&Tensor::from_slice(&[1i64, 2]))?;
        assert_eq!((like.size(), like.kind()), (vec![2], Kind::Int64));
        Ok(())
    }
}
