//! Closures that run while gradients are computed.

use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tch::Tensor;

use crate::callback::{BoxError, drop_box, give, run};
use crate::ffi::{self, CTensor, Failure};
use crate::status::{borrow, check, into_raw, raw};
use crate::{Error, Result};

/// A hook on a tensor's gradient; it stays until it is removed or the graph is gone.
#[derive(Debug)]
pub struct HookHandle {
    tensor: Tensor,
    id: u32,
}

impl HookHandle {
    /// Takes the hook away.
    ///
    /// # Errors
    /// If the tensor no longer takes part in a graph.
    pub fn remove(self) -> Result<()> {
        // SAFETY: the tensor is alive; the number is the one that libtorch gave.
        unsafe {
            check(
                "remove hook",
                ffi::acc_remove_hook(raw(&self.tensor), self.id),
            )
        }
    }
}

type GradientClosure = Mutex<Box<dyn FnMut(&Tensor) -> Result<Option<Tensor>, BoxError> + Send>>;

/// Runs `hook` with the gradient of `tensor` when a backward pass has computed it.
///
/// What the hook returns replaces the gradient; `None` leaves it as it is. The hook
/// runs on the thread of the backward pass, on CUDA on a thread of libtorch's.
///
/// # Errors
/// If the tensor does not require a gradient. What the hook itself returns comes out
/// of the backward pass as [`Error::Callback`].
pub fn on_gradient(
    tensor: &Tensor,
    hook: impl FnMut(&Tensor) -> Result<Option<Tensor>, BoxError> + Send + 'static,
) -> Result<HookHandle> {
    unsafe extern "C" fn call(
        closure: *mut c_void,
        gradient: *const CTensor,
        out: *mut *mut CTensor,
    ) -> *mut Failure {
        run(|| {
            // SAFETY: C++ passes the closure it was given, a live gradient and a place for the result.
            let (hook, gradient) =
                unsafe { (&*closure.cast::<GradientClosure>(), borrow(gradient)) };
            let replaced = (*lock(hook)?)(&gradient)?;
            // SAFETY: as above; C++ takes the tensor over.
            unsafe { *out = replaced.map_or(ptr::null_mut(), into_raw) };
            Ok(())
        })
    }
    let closure: GradientClosure = Mutex::new(Box::new(hook));
    let mut id = 0;
    // SAFETY: the closure is given up together with the functions that fit its type.
    unsafe {
        check(
            "hook on gradient",
            ffi::acc_register_hook(
                raw(tensor),
                give(closure),
                call,
                drop_box::<GradientClosure>,
                &mut id,
            ),
        )?;
    }
    Ok(HookHandle {
        tensor: tensor.shallow_clone(),
        id,
    })
}

/// A hook on a leaf's accumulated gradient; it stays until it is removed.
#[derive(Debug)]
pub struct PostAccumulateHandle {
    tensor: Tensor,
    id: u64,
}

impl PostAccumulateHandle {
    /// Takes the hook away.
    ///
    /// # Errors
    /// None that is known.
    pub fn remove(self) -> Result<()> {
        // SAFETY: the tensor is alive.
        unsafe {
            check(
                "remove hook",
                ffi::acc_post_accumulate_remove(raw(&self.tensor), self.id),
            )
        }
    }
}

type LeafClosure = Mutex<Box<dyn FnMut(&Tensor) -> Result<(), BoxError> + Send>>;

/// Runs `hook` with the leaf itself once its gradient is accumulated.
///
/// Hooks of one leaf run in the order in which they were added. A hook may take the
/// gradient away, which is how sharded training frees it early.
///
/// # Errors
/// If the tensor is no leaf. What the hook itself returns comes out of the backward
/// pass as [`Error::Callback`].
pub fn on_gradient_accumulated(
    leaf: &Tensor,
    hook: impl FnMut(&Tensor) -> Result<(), BoxError> + Send + 'static,
) -> Result<PostAccumulateHandle> {
    unsafe extern "C" fn call(closure: *mut c_void, leaf: *const CTensor) -> *mut Failure {
        run(|| {
            // SAFETY: C++ passes the closure it was given and a live leaf.
            let (hook, leaf) = unsafe { (&*closure.cast::<LeafClosure>(), borrow(leaf)) };
            (*lock(hook)?)(&leaf)
        })
    }
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let closure: LeafClosure = Mutex::new(Box::new(hook));
    // SAFETY: the closure is given up together with the functions that fit its type.
    unsafe {
        check(
            "hook on accumulated gradient",
            ffi::acc_post_accumulate_add(
                raw(leaf),
                id,
                give(closure),
                call,
                drop_box::<LeafClosure>,
            ),
        )?;
    }
    Ok(PostAccumulateHandle {
        tensor: leaf.shallow_clone(),
        id,
    })
}

/// A hook that calls itself, or that panicked before, cannot run.
fn lock<T: ?Sized>(closure: &Mutex<T>) -> Result<std::sync::MutexGuard<'_, T>, BoxError> {
    closure.try_lock().map_err(|_| {
        Error::Unavailable {
            operation: "hook on gradient",
            needed: "a hook that is not already running and did not panic before",
            remedy: "remove it, or start no backward pass over its tensor inside it",
        }
        .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd::{grad, set_grad};
    use std::sync::Arc;
    use tch::Kind;

    fn leaf() -> Tensor {
        Tensor::from_slice(&[1f32, 2.0]).set_requires_grad(true)
    }

    #[test]
    fn a_hook_replaces_the_gradient_until_removed() -> Result<()> {
        let x = leaf();
        let handle = on_gradient(&x, |g| Ok(Some(g.f_mul_scalar(10)?)))?;
        x.f_sum(Kind::Float)?.f_backward()?;
        assert_eq!(Vec::<f32>::try_from(x.grad())?, [10.0, 10.0]);
        handle.remove()?;
        set_grad(&x, None)?;
        x.f_sum(Kind::Float)?.f_backward()?;
        assert_eq!(Vec::<f32>::try_from(x.grad())?, [1.0, 1.0]);
        Ok(())
    }

    #[test]
    fn leaf_hooks_run_in_order_and_may_take_the_gradient() -> Result<()> {
        let x = leaf();
        let log = Arc::new(Mutex::new(Vec::new()));
        let first = Arc::clone(&log);
        let handle = on_gradient_accumulated(&x, move |leaf| {
            let sum = grad(leaf)?.map(|g| g.sum(Kind::Float).double_value(&[]));
            first.lock().unwrap().push(sum);
            Ok(())
        })?;
        on_gradient_accumulated(&x, |leaf| Ok(set_grad(leaf, None)?))?;
        for _ in 0..2 {
            x.f_sum(Kind::Float)?.f_backward()?;
            assert!(grad(&x)?.is_none());
        }
        handle.remove()?;
        x.f_sum(Kind::Float)?.f_backward()?;
        assert_eq!(*log.lock().unwrap(), [Some(2.0), Some(2.0)]);
        Ok(())
    }

    #[test]
    fn the_error_of_a_hook_comes_out_of_the_backward_pass() -> Result<()> {
        let x = leaf();
        let _handle = on_gradient(&x, |_| Err("no gradient today".into()))?;
        let loss = x.f_sum(Kind::Float)?;
        let error = crate::autograd::backward(&[loss], None, Default::default()).unwrap_err();
        assert!(
            matches!(&error, Error::Callback { operation: "backward", source } if source.to_string() == "no gradient today"),
            "{error}"
        );
        Ok(())
    }

    #[test]
    fn a_panic_in_a_hook_is_an_error_of_the_backward_pass() -> Result<()> {
        let x = leaf();
        let _handle = on_gradient_accumulated(&x, |_| panic!("boom {}", 7))?;
        let loss = x.f_sum(Kind::Float)?;
        let error = crate::autograd::backward(&[loss], None, Default::default()).unwrap_err();
        assert!(
            matches!(&error, Error::CallbackPanicked { message, .. } if message == "boom 7"),
            "{error}"
        );
        Ok(())
    }

    #[test]
    fn a_tensor_without_gradient_has_no_hook() {
        assert!(on_gradient(&Tensor::from_slice(&[1f32]), |_| Ok(None)).is_err());
    }

    #[test]
    fn a_hook_is_dropped_with_its_tensor() -> Result<()> {
        let alive = Arc::new(());
        let inside = Arc::clone(&alive);
        let x = leaf();
        drop(on_gradient_accumulated(&x, move |_| {
            let _keep = &inside;
            Ok(())
        })?);
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(x);
        assert_eq!(Arc::strong_count(&alive), 1);
        Ok(())
    }
}
