//! Rust closures that libtorch calls.
//!
//! A closure crosses the boundary as a boxed value, a function that calls it and a
//! function that drops it. What it returns as an error, or panics with, travels
//! through libtorch inside a C++ exception and comes out as [`crate::Error`] where
//! Rust called libtorch. A panic never unwinds into C++.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::ffi;

/// What a closure may return as an error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a closure failed.
pub(crate) enum CallbackError {
    Returned(BoxError),
    Panicked(String),
}

impl fmt::Display for CallbackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Returned(error) => write!(f, "{error}"),
            Self::Panicked(message) => write!(f, "a Rust closure panicked: {message}"),
        }
    }
}

/// Runs the body of a trampoline: null if it succeeds, or the failure for C++.
pub(crate) fn run(body: impl FnOnce() -> Result<(), BoxError>) -> *mut ffi::Failure {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return ptr::null_mut(),
        Ok(Err(error)) => CallbackError::Returned(error),
        Err(panic) => CallbackError::Panicked(panic_text(panic.as_ref())),
    };
    failure(error)
}

/// Packs an error for the way through C++.
pub(crate) fn failure(error: CallbackError) -> *mut ffi::Failure {
    let text = error.to_string();
    let payload = Box::into_raw(Box::new(error));
    // SAFETY: the text is copied during the call; the payload is owned by the failure from now on
    // and freed by `drop_box::<CallbackError>`, unless `status::outcome` takes it back.
    unsafe {
        ffi::acc_failure_new(
            text.as_ptr().cast(),
            text.len(),
            payload.cast(),
            drop_box::<CallbackError>,
        )
    }
}

/// Gives a closure up to C++.
pub(crate) fn give<F>(closure: F) -> *mut c_void {
    Box::into_raw(Box::new(closure)).cast()
}

/// The `Drop` of what [`give`] gave.
pub(crate) unsafe extern "C" fn drop_box<F>(value: *mut c_void) {
    // A panicking destructor must not unwind into C++ either.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: `value` was made by `Box::<F>::into_raw`, and C++ calls this once.
        drop(unsafe { Box::from_raw(value.cast::<F>()) });
    }));
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is no text".to_owned())
}
