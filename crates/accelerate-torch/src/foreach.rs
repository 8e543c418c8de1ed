//! Kernels over lists of tensors.

use std::ptr;

use tch::Tensor;

use crate::status::{check, own, raw, raw_list};
use crate::{Result, ffi};

/// The norm of every tensor, each as a 0-dim tensor.
///
/// # Errors
/// What libtorch refuses, such as integer tensors.
pub fn norm(tensors: &[Tensor], ord: f64) -> Result<Vec<Tensor>> {
    let mut out = vec![ptr::null_mut(); tensors.len()];
    // SAFETY: `out` has room for one tensor each; on success the shim filled and gave up all.
    unsafe {
        check(
            "norms",
            ffi::acc_foreach_norm(
                raw_list(tensors).as_ptr(),
                tensors.len(),
                ord,
                out.as_mut_ptr(),
            ),
        )?;
        Ok(out.into_iter().map(|tensor| own(tensor)).collect())
    }
}

/// Multiplies every tensor by a 0-dim `factor`, in place and without autograd.
///
/// # Errors
/// What libtorch refuses.
pub fn mul_(tensors: &[Tensor], factor: &Tensor) -> Result<()> {
    // SAFETY: list and factor are borrowed for the call.
    unsafe {
        check(
            "multiply tensors",
            ffi::acc_foreach_mul(raw_list(tensors).as_ptr(), tensors.len(), raw(factor)),
        )
    }
}

/// Adds a number to every tensor, in place and without autograd.
///
/// # Errors
/// What libtorch refuses.
pub fn add_scalar_(tensors: &[Tensor], value: f64) -> Result<()> {
    // SAFETY: the list is borrowed for the call.
    unsafe {
        check(
            "add to tensors",
            ffi::acc_foreach_add_scalar(raw_list(tensors).as_ptr(), tensors.len(), value),
        )
    }
}

/// Limits every value to `low..=high`, in place and without autograd.
///
/// # Errors
/// What libtorch refuses.
pub fn clamp_(tensors: &[Tensor], low: f64, high: f64) -> Result<()> {
    // SAFETY: the list is borrowed for the call.
    unsafe {
        check(
            "clamp tensors",
            ffi::acc_foreach_clamp(raw_list(tensors).as_ptr(), tensors.len(), low, high),
        )
    }
}

/// Sets every tensor to zero, in place and without autograd.
///
/// # Errors
/// What libtorch refuses.
pub fn zero_(tensors: &[Tensor]) -> Result<()> {
    // SAFETY: the list is borrowed for the call.
    unsafe {
        check(
            "zero tensors",
            ffi::acc_foreach_zero(raw_list(tensors).as_ptr(), tensors.len()),
        )
    }
}

/// Multiplies every tensor by `inverse_scale` and sets `found_inf` to 1 where a value is not finite.
///
/// Both are one-element float32 tensors on the device of the list.
///
/// # Errors
/// What libtorch refuses.
pub fn unscale_(tensors: &[Tensor], found_inf: &Tensor, inverse_scale: &Tensor) -> Result<()> {
    // SAFETY: list and both scalars are borrowed for the call.
    unsafe {
        check(
            "unscale tensors",
            ffi::acc_unscale(
                raw_list(tensors).as_ptr(),
                tensors.len(),
                raw(found_inf),
                raw(inverse_scale),
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn works_on_all_tensors_at_once() -> Result<()> {
        let tensors = [
            Tensor::from_slice(&[3f32, 4.0]),
            Tensor::from_slice(&[-2f32]),
        ];
        let norms = norm(&tensors, 2.0)?;
        assert_eq!(
            [norms[0].double_value(&[]), norms[1].double_value(&[])],
            [5.0, 2.0]
        );
        mul_(&tensors, &Tensor::from(2f32))?;
        add_scalar_(&tensors, 1.0)?;
        clamp_(&tensors, -1.0, 8.0)?;
        assert_eq!(Vec::<f32>::try_from(&tensors[0])?, [7.0, 8.0]);
        assert_eq!(Vec::<f32>::try_from(&tensors[1])?, [-1.0]);
        zero_(&tensors)?;
        assert_eq!(Vec::<f32>::try_from(&tensors[0])?, [0.0, 0.0]);
        Ok(())
    }

    #[test]
    fn unscaling_reports_what_is_not_finite() -> Result<()> {
        let found = Tensor::from_slice(&[0f32]);
        let half = Tensor::from_slice(&[0.5f32]);
        let good = [Tensor::from_slice(&[4f32])];
        unscale_(&good, &found, &half)?;
        assert_eq!(
            [good[0].double_value(&[0]), found.double_value(&[0])],
            [2.0, 0.0]
        );
        unscale_(&[Tensor::from_slice(&[f32::INFINITY])], &found, &half)?;
        assert_eq!(found.double_value(&[0]), 1.0);
        Ok(())
    }
}
