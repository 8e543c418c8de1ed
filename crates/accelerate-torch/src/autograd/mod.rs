//! Hooks, functions with a Rust backward, and the backward pass.

mod function;
mod hook;

use std::ptr;
use std::time::Duration;

use tch::Tensor;

use crate::blocked;
use crate::fused::same_length;
use crate::status::{check, own, raw, raw_list, raw_or_null};
use crate::{Result, ffi};

pub use function::{BackwardContext, ForwardContext, function};
pub use hook::{HookHandle, PostAccumulateHandle, on_gradient, on_gradient_accumulated};

/// The gradient accumulated in a leaf, if there is one.
///
/// # Errors
/// If the tensor is undefined.
pub fn grad(tensor: &Tensor) -> Result<Option<Tensor>> {
    let mut out = ptr::null_mut();
    // SAFETY: the tensor is alive; the shim gives the gradient up, or leaves null.
    unsafe {
        check("read gradient", ffi::acc_grad(raw(tensor), &mut out))?;
        Ok((!out.is_null()).then(|| own(out)))
    }
}

/// Puts another gradient into a leaf, or none, which frees its memory.
///
/// # Errors
/// If the tensor cannot have a gradient.
pub fn set_grad(tensor: &Tensor, gradient: Option<&Tensor>) -> Result<()> {
    // SAFETY: tensor and gradient are alive.
    unsafe {
        check(
            "set gradient",
            ffi::acc_set_grad(raw(tensor), raw_or_null(gradient)),
        )
    }
}

/// Whether this thread records operations for a backward pass; off inside [`tch::no_grad`].
#[must_use]
pub fn is_enabled() -> bool {
    // SAFETY: no pointer is involved.
    unsafe { ffi::acc_grad_enabled() }
}

/// How a backward pass treats the graph.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackwardOptions {
    /// Keep the graph for another pass.
    pub retain_graph: bool,
    /// Record the pass itself, for gradients of gradients.
    pub create_graph: bool,
}

/// Accumulates the gradients of `tensors` into the leaves of their graphs.
///
/// `gradients`, one for each tensor, are what their values are weighed with; without
/// them every tensor holds one value.
///
/// # Errors
/// What libtorch refuses, and what a hook or function of ours failed with.
pub fn backward(
    tensors: &[Tensor],
    gradients: Option<&[Tensor]>,
    options: BackwardOptions,
) -> Result<()> {
    run_backward(tensors, gradients, options, None)
}

/// As [`backward`] through models whose gradients a [`Reducer`](crate::Reducer) averages, and counts
/// how long it waited behind the graph for them: see [`time_blocked`](crate::time_blocked).
///
/// # Errors
/// As [`backward`].
pub fn backward_of_reducers(tensors: &[Tensor], options: BackwardOptions) -> Result<()> {
    let mut nanoseconds = 0;
    run_backward(tensors, None, options, Some(&mut nanoseconds))?;
    blocked::add(Duration::from_nanos(
        u64::try_from(nanoseconds).unwrap_or(0),
    ));
    Ok(())
}

fn run_backward(
    tensors: &[Tensor],
    gradients: Option<&[Tensor]>,
    options: BackwardOptions,
    behind_graph: Option<&mut i64>,
) -> Result<()> {
    let operation = "backward";
    if let Some(gradients) = gradients {
        same_length(operation, tensors.len(), &[gradients.len()])?;
    }
    let given = gradients.map(raw_list);
    // SAFETY: both lists are borrowed for the call and have `tensors.len()` entries; the number is
    // none or may be written.
    unsafe {
        check(
            operation,
            ffi::acc_backward(
                raw_list(tensors).as_ptr(),
                given.as_ref().map_or(ptr::null(), |list| list.as_ptr()),
                tensors.len(),
                options.retain_graph,
                options.create_graph,
                behind_graph.map_or(ptr::null_mut(), ptr::from_mut),
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_are_set_and_taken_away() -> Result<()> {
        let leaf = Tensor::from_slice(&[1f32]).set_requires_grad(true);
        assert!(grad(&leaf)?.is_none());
        set_grad(&leaf, Some(&Tensor::from_slice(&[5f32])))?;
        assert_eq!(grad(&leaf)?.map(|g| g.double_value(&[0])), Some(5.0));
        set_grad(&leaf, None)?;
        assert!(grad(&leaf)?.is_none());
        Ok(())
    }

    #[test]
    fn recording_is_off_where_gradients_are() {
        assert!(is_enabled());
        assert!(!tch::no_grad(is_enabled));
    }

    #[test]
    fn given_gradients_weigh_the_values() -> Result<()> {
        let leaf = Tensor::from_slice(&[1f32, 2.0]).set_requires_grad(true);
        let out = leaf.f_mul(&leaf)?;
        let weights = [Tensor::from_slice(&[1f32, 10.0])];
        let keep = BackwardOptions {
            retain_graph: true,
            ..BackwardOptions::default()
        };
        backward(&[out.shallow_clone()], Some(&weights), keep)?;
        assert_eq!(Vec::<f32>::try_from(leaf.grad())?, [2.0, 40.0]);
        backward(
            &[out.shallow_clone()],
            Some(&weights),
            BackwardOptions::default(),
        )?;
        assert_eq!(Vec::<f32>::try_from(leaf.grad())?, [4.0, 80.0]);
        let again = backward(&[out], Some(&weights), BackwardOptions::default());
        assert!(again.unwrap_err().to_string().contains("second time"));
        assert!(backward(&[], Some(&weights), BackwardOptions::default()).is_err());
        Ok(())
    }
}
