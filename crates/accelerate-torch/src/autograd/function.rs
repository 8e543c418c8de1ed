//! Operations whose forward and backward are Rust closures.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use tch::Tensor;

use crate::callback::{BoxError, drop_box, give, run};
use crate::ffi::{self, CTensor, Context, Failure, TensorList};
use crate::status::{borrow, check, push, raw, raw_list, raw_or_null, target};
use crate::{Error, Result};

/// What the forward closure may tell autograd.
#[derive(Debug)]
pub struct ForwardContext {
    context: NonNull<Context>,
}

impl ForwardContext {
    /// Keeps inputs or outputs for the backward closure.
    ///
    /// # Errors
    /// None that is known.
    pub fn save(&mut self, tensors: &[&Tensor]) -> Result<()> {
        let list = raw_list(tensors.iter().copied());
        // SAFETY: the context lives while the closure runs; the tensors are borrowed for the call.
        unsafe {
            check(
                "save for backward",
                ffi::acc_context_save(self.context.as_ptr(), list.as_ptr(), list.len()),
            )
        }
    }

    /// Says that no gradient flows through these outputs.
    ///
    /// # Errors
    /// None that is known.
    pub fn mark_non_differentiable(&mut self, outputs: &[&Tensor]) -> Result<()> {
        let list = raw_list(outputs.iter().copied());
        // SAFETY: as for `save`.
        unsafe {
            check(
                "mark non-differentiable",
                ffi::acc_context_non_differentiable(
                    self.context.as_ptr(),
                    list.as_ptr(),
                    list.len(),
                ),
            )
        }
    }
}

/// What the backward closure may ask.
#[derive(Debug)]
pub struct BackwardContext {
    context: NonNull<Context>,
}

impl BackwardContext {
    /// What [`ForwardContext::save`] kept.
    ///
    /// # Errors
    /// If a saved tensor was changed in place since, or the graph was freed.
    pub fn saved(&self) -> Result<Vec<Tensor>> {
        let mut tensors = Vec::new();
        // SAFETY: the context lives while the closure runs; `push` gets the vector it expects.
        unsafe {
            check(
                "saved tensors",
                ffi::acc_context_saved(self.context.as_ptr(), target(&mut tensors), push),
            )?;
        }
        Ok(tensors)
    }

    /// Whether the input with this number wants a gradient.
    ///
    /// # Errors
    /// If there is no such input.
    pub fn needs_gradient(&self, input: usize) -> Result<bool> {
        let mut needed = false;
        // SAFETY: the context lives while the closure runs.
        unsafe {
            check(
                "gradient need",
                ffi::acc_context_needs_gradient(self.context.as_ptr(), input, &mut needed),
            )?;
        }
        Ok(needed)
    }
}

type Forward =
    Mutex<Option<Box<dyn FnOnce(&mut ForwardContext, &[Tensor]) -> Result<Vec<Tensor>, BoxError>>>>;
type Backward = Mutex<
    Box<
        dyn FnMut(&BackwardContext, &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>, BoxError>
            + Send,
    >,
>;

/// Runs an operation that brings its own gradient.
///
/// `forward` gets the inputs, outside of autograd, and returns the outputs. `backward`
/// gets the gradient of every output (`None` where none arrived) and returns the
/// gradient of every input (`None` for none). It runs once per backward pass, on the
/// thread of that pass.
///
/// # Errors
/// [`Error::Callback`] with what `forward` returns. What `backward` returns comes out
/// of the backward pass; so does a wrong number of gradients.
///
/// # Source
/// `torch.autograd.Function`. Differs: closures instead of a class.
pub fn function(
    inputs: &[&Tensor],
    forward: impl FnOnce(&mut ForwardContext, &[Tensor]) -> Result<Vec<Tensor>, BoxError> + 'static,
    backward: impl FnMut(&BackwardContext, &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>, BoxError>
    + Send
    + 'static,
) -> Result<Vec<Tensor>> {
    let count = inputs.len();
    let backward = check_count(count, backward);
    let forward: Forward = Mutex::new(Some(Box::new(forward)));
    let backward: Backward = Mutex::new(Box::new(backward));
    let list = raw_list(inputs.iter().copied());
    let mut outputs = Vec::new();
    // SAFETY: both closures are given up together with the functions that fit their types; the
    // inputs are borrowed for the call; `push` gets the vector it expects.
    unsafe {
        check(
            "function",
            ffi::acc_function_apply(
                list.as_ptr(),
                count,
                give(forward),
                call_forward,
                drop_box::<Forward>,
                give(backward),
                call_backward,
                drop_box::<Backward>,
                target(&mut outputs),
                push,
            ),
        )?;
    }
    Ok(outputs)
}

/// libtorch aborts on a wrong number of gradients in ways that differ by case; say it ourselves.
fn check_count(
    inputs: usize,
    mut backward: impl FnMut(
        &BackwardContext,
        &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>, BoxError>,
) -> impl FnMut(&BackwardContext, &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>, BoxError> {
    move |context, gradients| {
        let found = backward(context, gradients)?;
        if found.len() == inputs {
            return Ok(found);
        }
        Err(Error::Argument {
            operation: "function",
            expected: format!("a gradient, or none, for each of {inputs} inputs"),
            found: format!("{}", found.len()),
        }
        .into())
    }
}

unsafe extern "C" fn call_forward(
    closure: *mut c_void,
    context: *mut Context,
    tensors: *const *const CTensor,
    count: usize,
    out: *mut TensorList,
) -> *mut Failure {
    run(|| {
        // SAFETY: C++ passes the closure it was given, and live inputs.
        let (forward, inputs) = unsafe { (&*closure.cast::<Forward>(), present(tensors, count)) };
        let forward = forward.lock().ok().and_then(|mut slot| slot.take());
        let (Some(forward), Some(context)) = (forward, NonNull::new(context)) else {
            return Err("a forward closure runs once".into());
        };
        for output in forward(&mut ForwardContext { context }, &inputs)? {
            // SAFETY: the list is C++'s and alive; it copies the handle.
            unsafe { ffi::acc_list_push(out, raw(&output)) };
        }
        Ok(())
    })
}

unsafe extern "C" fn call_backward(
    closure: *mut c_void,
    context: *mut Context,
    tensors: *const *const CTensor,
    count: usize,
    out: *mut TensorList,
) -> *mut Failure {
    run(|| {
        // SAFETY: C++ passes the closure it was given, and live or null gradients.
        let (backward, gradients) =
            unsafe { (&*closure.cast::<Backward>(), optional(tensors, count)) };
        let Some(context) = NonNull::new(context) else {
            return Err("autograd gave no context".into());
        };
        let mut backward = backward
            .lock()
            .map_err(|_| "the backward closure panicked before".to_owned())?;
        for gradient in (*backward)(&BackwardContext { context }, &gradients)? {
            // SAFETY: the list is C++'s and alive; it copies the handle.
            unsafe { ffi::acc_list_push(out, raw_or_null(gradient.as_ref())) };
        }
        Ok(())
    })
}

/// # Safety
/// `tensors` holds `count` pointers to live tensors or nulls.
unsafe fn optional(tensors: *const *const CTensor, count: usize) -> Vec<Option<Tensor>> {
    if count == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    let list = unsafe { std::slice::from_raw_parts(tensors, count) };
    list.iter()
        // SAFETY: the caller's promise.
        .map(|&tensor| (!ptr::eq(tensor, ptr::null())).then(|| unsafe { borrow(tensor) }))
        .collect()
}

/// # Safety
/// As for [`optional`].
unsafe fn present(tensors: *const *const CTensor, count: usize) -> Vec<Tensor> {
    // SAFETY: the caller's promise.
    unsafe { optional(tensors, count) }
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd::{BackwardOptions, backward};
    use tch::Kind;

    /// `a * b`, by hand.
    fn product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
        let outputs = function(
            &[a, b],
            |context, inputs| {
                context.save(&[&inputs[0], &inputs[1]])?;
                Ok(vec![inputs[0].f_mul(&inputs[1])?])
            },
            |context, gradients| {
                let saved = context.saved()?;
                let gradient = gradients[0].as_ref().ok_or("no gradient")?;
                let first = if context.needs_gradient(0)? {
                    Some(gradient.f_mul(&saved[1])?)
                } else {
                    None
                };
                Ok(vec![first, Some(gradient.f_mul(&saved[0])?)])
            },
        )?;
        Ok(outputs.into_iter().next().expect("one output"))
    }

    #[test]
    fn the_gradient_is_the_closures() -> Result<()> {
        let a = Tensor::from_slice(&[2f32, 3.0]).set_requires_grad(true);
        let b = Tensor::from_slice(&[5f32, 7.0]).set_requires_grad(true);
        product(&a, &b)?.f_sum(Kind::Float)?.f_backward()?;
        assert_eq!(Vec::<f32>::try_from(a.grad())?, [5.0, 7.0]);
        assert_eq!(Vec::<f32>::try_from(b.grad())?, [2.0, 3.0]);
        Ok(())
    }

    #[test]
    fn an_input_without_gradient_is_left_alone() -> Result<()> {
        let a = Tensor::from_slice(&[2f32]);
        let b = Tensor::from_slice(&[5f32]).set_requires_grad(true);
        let out = product(&a, &b)?;
        assert!(out.requires_grad());
        out.f_sum(Kind::Float)?.f_backward()?;
        assert_eq!(Vec::<f32>::try_from(b.grad())?, [2.0]);
        assert!(!tch::no_grad(|| product(&a, &b))?.requires_grad());
        Ok(())
    }

    #[test]
    fn errors_come_out_where_rust_called() -> Result<()> {
        let a = Tensor::from_slice(&[2f32]).set_requires_grad(true);
        let failed = function(
            &[&a],
            |_, _| Err("no forward".into()),
            |_, _| Ok(vec![None]),
        );
        assert!(matches!(
            failed.unwrap_err(),
            Error::Callback {
                operation: "function",
                ..
            }
        ));
        let out = function(
            &[&a],
            |_, inputs| Ok(vec![inputs[0].f_mul_scalar(2)?]),
            |_, _| Ok(vec![]),
        )?;
        let loss = out[0].f_sum(Kind::Float)?;
        let error = backward(&[loss], None, BackwardOptions::default()).unwrap_err();
        assert!(
            error.to_string().contains("each of 1 inputs, found 0"),
            "{error}"
        );
        Ok(())
    }

    #[test]
    fn an_output_can_be_outside_of_autograd() -> Result<()> {
        let a = Tensor::from_slice(&[2f32, 1.0]).set_requires_grad(true);
        let outputs = function(
            &[&a],
            |context, inputs| {
                let (values, order) = inputs[0].f_sort(0, false)?;
                context.mark_non_differentiable(&[&order])?;
                Ok(vec![values, order])
            },
            |_, gradients| Ok(vec![gradients[0].as_ref().map(Tensor::shallow_clone)]),
        )?;
        assert!(outputs[0].requires_grad() && !outputs[1].requires_grad());
        Ok(())
    }
}
