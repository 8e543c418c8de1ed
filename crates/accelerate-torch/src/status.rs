//! From the shim's statuses, tensors and bytes to Rust values.

use std::ffi::{c_char, c_void};
use std::ptr;

use tch::Tensor;

use crate::callback::CallbackError;
use crate::ffi::{self, CTensor};
use crate::store::is_timeout;
use crate::{Error, ExceptionKind, Place, Result};

/// What a failed call left behind.
pub(crate) struct Exception {
    pub kind: ExceptionKind,
    pub message: String,
    pub callback: Option<CallbackError>,
}

impl Exception {
    /// The error of an operation between ranks.
    pub(crate) fn into_place_error(self, operation: &'static str, place: &Place) -> Error {
        if self.callback.is_some() {
            return self.into_error(operation);
        }
        if is_timeout(&self.message) {
            let place = Some(place.clone());
            return Error::Timeout {
                operation,
                place,
                message: self.message,
            };
        }
        let lost = [
            "Connection closed by peer",
            "Connection reset",
            "Broken pipe",
            "Socket closed",
        ];
        if lost.iter().any(|sign| self.message.contains(sign)) {
            let place = place.clone();
            return Error::ConnectionLost {
                operation,
                place,
                message: self.message,
            };
        }
        self.into_error(operation)
    }

    /// The error of `operation`, where nothing more is known about the place.
    pub(crate) fn into_error(self, operation: &'static str) -> Error {
        match self.callback {
            Some(CallbackError::Returned(source)) => Error::Callback { operation, source },
            Some(CallbackError::Panicked(message)) => {
                Error::CallbackPanicked { operation, message }
            }
            None => Error::Libtorch {
                operation,
                kind: self.kind,
                message: self.message,
            },
        }
    }
}

/// Turns a status of the shim into a result and frees it.
///
/// # Safety
/// `status` is null or was returned by an entry point and not used before.
pub(crate) unsafe fn outcome(status: *mut ffi::Status) -> Result<(), Exception> {
    if status.is_null() {
        return Ok(());
    }
    let mut message = Vec::new();
    // SAFETY: the status is alive until `acc_status_free`; the sink gets the vector it expects;
    // the payload is a `Box<CallbackError>` made by `callback::failure`, and C++ gives it up.
    let (kind, callback) = unsafe {
        ffi::acc_status_message(status, append, target(&mut message));
        let payload = ffi::acc_status_take_payload(status).cast::<CallbackError>();
        let callback = (!payload.is_null()).then(|| *Box::from_raw(payload));
        let kind = ffi::acc_status_kind(status);
        ffi::acc_status_free(status);
        (kind, callback)
    };
    let kind = match kind {
        0 => ExceptionKind::Torch,
        1 => ExceptionKind::OutOfMemory,
        2 => ExceptionKind::Store,
        3 => ExceptionKind::Network,
        4 => ExceptionKind::Backend,
        5 => ExceptionKind::Standard,
        _ => ExceptionKind::Unknown,
    };
    Err(Exception {
        kind,
        message: lossy(message),
        callback,
    })
}

/// Like [`outcome`], with the operation named.
///
/// # Safety
/// As for [`outcome`].
pub(crate) unsafe fn check(operation: &'static str, status: *mut ffi::Status) -> Result<()> {
    // SAFETY: the caller's promise is passed on.
    unsafe { outcome(status) }.map_err(|exception| exception.into_error(operation))
}

/// Takes a tensor that the shim made with `new`.
///
/// # Safety
/// `tensor` is such a tensor and nobody else owns it.
pub(crate) unsafe fn own(tensor: *mut CTensor) -> Tensor {
    // SAFETY: tch frees it with `delete`, as the shim's `new` needs.
    unsafe { Tensor::from_ptr(tensor.cast()) }
}

/// A new handle on a tensor that C++ keeps.
///
/// # Safety
/// `tensor` points to a live, defined tensor.
pub(crate) unsafe fn borrow(tensor: *const CTensor) -> Tensor {
    // SAFETY: the handle is copied; the reference count of libtorch is atomic.
    unsafe { Tensor::clone_from_ptr(tensor.cast_mut().cast()) }
}

/// The shim's view of a tensor.
pub(crate) fn raw(tensor: &Tensor) -> *const CTensor {
    tensor.as_ptr().cast()
}

/// The shim's view of an optional tensor.
pub(crate) fn raw_or_null(tensor: Option<&Tensor>) -> *const CTensor {
    tensor.map_or(ptr::null(), raw)
}

/// The shim's view of a list of tensors; valid while `tensors` is.
pub(crate) fn raw_list<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Vec<*const CTensor> {
    tensors.into_iter().map(raw).collect()
}

/// Gives up a tensor to C++, which will `delete` it.
pub(crate) fn into_raw(tensor: Tensor) -> *mut CTensor {
    let raw = tensor.as_ptr().cast_mut().cast();
    std::mem::forget(tensor);
    raw
}

/// A `Sink` that appends to the `Vec<u8>` that [`target`] names.
pub(crate) unsafe extern "C" fn append(target: *mut c_void, data: *const c_char, length: usize) {
    // SAFETY: `target` comes from `target(&mut Vec<u8>)` of the call under way; `data` is valid for
    // `length` bytes during this call.
    unsafe {
        let bytes = std::slice::from_raw_parts(data.cast::<u8>(), length);
        (*target.cast::<Vec<u8>>()).extend_from_slice(bytes);
    }
}

/// A `Push` that takes over a tensor into the `Vec<Tensor>` that [`target`] names.
pub(crate) unsafe extern "C" fn push(target: *mut c_void, tensor: *mut CTensor) {
    // SAFETY: `target` comes from `target(&mut Vec<Tensor>)`; the shim gives the tensor up.
    unsafe { (*target.cast::<Vec<Tensor>>()).push(own(tensor)) }
}

/// Where [`append`] or [`push`] put what they get.
pub(crate) fn target<T>(list: &mut Vec<T>) -> *mut c_void {
    ptr::from_mut(list).cast()
}

pub(crate) fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}
