//! Hooks, functions with a Rust backward, and the backward pass.

mod function;
mod hook;

use std::ptr;
use std::time::Duration;

use tch::Tensor;

use crate::blocked;
use crate::fused::same_length;
use crate::status::{check, own, push, raw, raw_list, raw_or_null, target};
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
    /// Run all of it on the calling thread, also on devices for which libtorch has threads of its own:
    /// for closures that belong to this thread.
    pub on_calling_thread: bool,
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
                options.on_calling_thread,
                behind_graph.map_or(ptr::null_mut(), ptr::from_mut),
            ),
        )
    }
}

/// The gradients of `inputs` as far as `outputs` depend on them, `None` where they do not.
///
/// `gradients`, one for each output, are what their values are weighed with. Nothing is accumulated,
/// and no hook of [`on_gradient_accumulated`] runs; the graph is freed.
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) for lists of different lengths; what libtorch refuses,
/// and what a hook or function of ours failed with.
///
/// # Source
/// `torch.autograd.grad` with `allow_unused`.
pub fn gradients(
    outputs: &[Tensor],
    gradients: &[Tensor],
    inputs: &[Tensor],
) -> Result<Vec<Option<Tensor>>> {
    let operation = "gradients";
    same_length(operation, outputs.len(), &[gradients.len()])?;
    let mut found = vec![false; inputs.len()];
    let mut computed = Vec::new();
    // SAFETY: all lists are borrowed for the call and have the lengths given; `found` has an entry
    // for each input; `push` gets the vector it expects.
    unsafe {
        check(
            operation,
            ffi::acc_gradients(
                raw_list(outputs).as_ptr(),
                raw_list(gradients).as_ptr(),
                outputs.len(),
                raw_list(inputs).as_ptr(),
                inputs.len(),
                found.as_mut_ptr(),
                target(&mut computed),
                push,
            ),
        )?;
    }
    let mut computed = computed.into_iter();
    let all = found.into_iter();
    Ok(all
        .map(|found| if found { computed.next() } else { None })
        .collect())
}

/// Whether a leaf has, or had, hooks of [`on_gradient`].
///
/// # Errors
/// If the tensor is no leaf that wants a gradient.
pub fn has_gradient_hooks(leaf: &Tensor) -> Result<bool> {
    let mut found = false;
    // SAFETY: the tensor is alive and the flag is written before it is read.
    unsafe { check("gradient hooks", ffi::acc_has_hooks(raw(leaf), &mut found))? };
    Ok(found)
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
    fn gradients_are_computed_without_being_accumulated() -> Result<()> {
        let used = Tensor::from_slice(&[2f32, 3.0]).set_requires_grad(true);
        let unused = Tensor::from_slice(&[1f32]).set_requires_grad(true);
        let out = used.f_mul(&used)?;
        let weights = [Tensor::from_slice(&[1f32, 10.0])];
        let inputs = [used.shallow_clone(), unused.shallow_clone()];
        let found = gradients(&[out], &weights, &inputs)?;
        let values = found[0].as_ref().map(Vec::<f32>::try_from);
        assert_eq!(values.transpose()?, Some(vec![4.0, 60.0]));
        assert!(found[1].is_none());
        assert!(grad(&used)?.is_none());
        assert!(gradients(&[unused.f_neg()?], &[], &inputs).is_err());
        Ok(())
    }

    #[test]
    fn hooks_of_a_leaf_are_noticed() -> Result<()> {
        let leaf = Tensor::from_slice(&[1f32]).set_requires_grad(true);
        assert!(!has_gradient_hooks(&leaf)?);
        let _stays = on_gradient(&leaf, |_| Ok(None))?;
        assert!(has_gradient_hooks(&leaf)?);
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
