//! Values that are computed or received later.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use tch::Tensor;

use crate::callback::{BoxError, CallbackError, drop_box, failure, give, run};
use crate::ffi::{self, CTensor, Failure};
use crate::status::{borrow, check, into_raw, own, raw, raw_or_null};
use crate::{Error, Result};

/// A tensor that will be there later.
#[derive(Debug)]
pub struct Future {
    handle: NonNull<ffi::Future>,
}

// SAFETY: a reference-counted pointer with an atomic count; the future guards its state
// with its own mutex.
unsafe impl Send for Future {}
// SAFETY: as above.
unsafe impl Sync for Future {}

impl Drop for Future {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is not used after.
        unsafe { ffi::acc_future_free(self.handle.as_ptr()) }
    }
}

type Closure = Mutex<Option<Box<dyn FnOnce(Tensor) -> Result<Tensor, BoxError> + Send>>>;

impl Future {
    /// # Safety
    /// `raw` is null or an owned handle.
    pub(crate) unsafe fn from_raw(raw: *mut ffi::Future) -> Result<Self> {
        NonNull::new(raw)
            .map(|handle| Self { handle })
            .ok_or(Error::Unavailable {
                operation: "future",
                needed: "a future",
                remedy: "libtorch returned none",
            })
    }

    /// Gives the handle up to C++.
    pub(crate) fn into_raw(self) -> *mut ffi::Future {
        let raw = self.handle.as_ptr();
        std::mem::forget(self);
        raw
    }

    /// A future that is done.
    ///
    /// # Errors
    /// None that is known.
    pub fn completed(value: &Tensor) -> Result<Self> {
        let (promise, future) = promise(Some(value))?;
        promise.complete(value)?;
        Ok(future)
    }

    /// Waits for the value.
    ///
    /// # Errors
    /// What the value's computation failed with.
    pub fn wait(&self) -> Result<Tensor> {
        let mut out = ptr::null_mut();
        // SAFETY: the handle is alive; the shim gives the tensor up.
        unsafe {
            check(
                "wait for future",
                ffi::acc_future_wait(self.handle.as_ptr(), &mut out),
            )?;
            Ok(own(out))
        }
    }

    /// Whether waiting would return at once.
    ///
    /// # Errors
    /// None that is known.
    pub fn is_completed(&self) -> Result<bool> {
        let mut done = false;
        // SAFETY: the handle is alive.
        unsafe {
            check(
                "future state",
                ffi::acc_future_is_completed(self.handle.as_ptr(), &mut done),
            )?;
        }
        Ok(done)
    }

    /// A future of what `closure` makes of the value.
    ///
    /// The closure runs when the value is there, on the thread that brings it, which is
    /// often one of the backend's: keep it short. On CUDA it runs on the CPU while the
    /// value may still be under way on a stream; libtorch orders the kernels.
    ///
    /// # Errors
    /// None that is known. What the closure returns as an error is the error of the new
    /// future.
    pub fn then(
        &self,
        closure: impl FnOnce(Tensor) -> Result<Tensor, BoxError> + Send + 'static,
    ) -> Result<Self> {
        unsafe extern "C" fn call(
            closure: *mut c_void,
            value: *const CTensor,
            out: *mut *mut CTensor,
        ) -> *mut Failure {
            run(|| {
                // SAFETY: C++ passes the closure it was given, a live value and a place for the result.
                let (slot, value) = unsafe { (&*closure.cast::<Closure>(), borrow(value)) };
                let closure = slot.lock().ok().and_then(|mut slot| slot.take());
                let result = closure.ok_or("a future calls its closure once")?(value)?;
                // SAFETY: as above; C++ takes the tensor over.
                unsafe { *out = into_raw(result) };
                Ok(())
            })
        }
        let closure: Closure = Mutex::new(Some(Box::new(closure)));
        let mut out = ptr::null_mut();
        // SAFETY: the closure is given up together with the functions that fit its type.
        unsafe {
            check(
                "future",
                ffi::acc_future_then(
                    self.handle.as_ptr(),
                    give(closure),
                    call,
                    drop_box::<Closure>,
                    &mut out,
                ),
            )?;
            Self::from_raw(out)
        }
    }
}

/// The side of a [`Future`] that brings the value. Dropping it without one fails the future.
#[derive(Debug)]
pub struct Promise {
    future: Option<NonNull<ffi::Future>>,
}

// SAFETY: as for `Future`.
unsafe impl Send for Promise {}

/// A future and the promise that completes it.
///
/// `like` is a tensor on the device where the value will be; none stands for the CPU.
///
/// # Errors
/// None that is known.
pub fn promise(like: Option<&Tensor>) -> Result<(Promise, Future)> {
    let operation = "promise";
    let (mut mine, mut theirs) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the tensor is alive; on success both handles are owned, each by one side.
    unsafe {
        check(operation, ffi::acc_future_new(raw_or_null(like), &mut mine))?;
        let promise = Promise {
            future: NonNull::new(mine),
        };
        check(operation, ffi::acc_future_share(mine, &mut theirs))?;
        Ok((promise, Future::from_raw(theirs)?))
    }
}

impl Promise {
    /// Brings the value.
    ///
    /// # Errors
    /// None that is known.
    pub fn complete(mut self, value: &Tensor) -> Result<()> {
        match self.future.take() {
            // SAFETY: the handle is owned by this promise and freed here.
            Some(future) => unsafe {
                let done = ffi::acc_future_complete(future.as_ptr(), raw(value));
                ffi::acc_future_free(future.as_ptr());
                check("complete promise", done)
            },
            None => Ok(()),
        }
    }

    /// Says that there will be no value, and why.
    ///
    /// # Errors
    /// None that is known.
    pub fn fail(mut self, error: impl Into<BoxError>) -> Result<()> {
        self.give_up(CallbackError::Returned(error.into()))
    }

    fn give_up(&mut self, error: CallbackError) -> Result<()> {
        match self.future.take() {
            // SAFETY: the handle is owned by this promise and freed here; the failure is given up.
            Some(future) => unsafe {
                let done = ffi::acc_future_fail(future.as_ptr(), failure(error));
                ffi::acc_future_free(future.as_ptr());
                check("fail promise", done)
            },
            None => Ok(()),
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let _ = self.give_up(CallbackError::Returned(
            "the promise was dropped without a value".into(),
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_passes_through_closures() -> Result<()> {
        let (promise, future) = promise(None)?;
        let next = future.then(|value| Ok(value.f_add_scalar(1)?))?;
        assert!(!next.is_completed()?);
        let thread = std::thread::spawn(move || promise.complete(&Tensor::from(41i64)));
        assert_eq!(next.wait()?.int64_value(&[]), 42);
        thread.join().unwrap()?;
        assert!(future.is_completed()?);
        Ok(())
    }

    #[test]
    fn a_failure_reaches_who_waits() -> Result<()> {
        let future = Future::completed(&Tensor::from(1i64))?;
        let failed = future.then(|_| Err("no luck".into()))?;
        assert!(failed.wait().unwrap_err().to_string().contains("no luck"));
        let (given_up, future) = promise(None)?;
        given_up.fail("another reason")?;
        assert!(
            future
                .wait()
                .unwrap_err()
                .to_string()
                .contains("another reason")
        );
        let (dropped, future) = promise(None)?;
        drop(dropped);
        assert!(future.wait().unwrap_err().to_string().contains("dropped"));
        Ok(())
    }

    #[test]
    fn a_panic_fails_the_future() -> Result<()> {
        let future = Future::completed(&Tensor::from(1i64))?;
        let failed = future.then(|_| panic!("oh"))?;
        assert!(
            failed
                .wait()
                .unwrap_err()
                .to_string()
                .contains("panicked: oh")
        );
        Ok(())
    }
}
