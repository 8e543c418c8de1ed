//! Averages gradients over ranks while the backward pass still runs.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Mutex;

use tch::{Kind, Tensor};

use crate::bucket::GradBucket;
use crate::callback::{BoxError, drop_box, give, run};
use crate::ffi::{self, Failure};
use crate::future::Future;
use crate::status::{check, outcome, raw_list};
use crate::{Error, ProcessGroup, ReduceOp, Result};

/// Bytes in a mebibyte, the unit that bucket sizes are given in.
pub const MIB: usize = 1 << 20;
/// The size of the first bucket, small so that communication starts early.
pub const FIRST_BUCKET_BYTES: usize = MIB;

/// How gradients are reduced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReducerOptions {
    /// The size of a bucket in bytes.
    pub bucket_bytes: usize,
    /// The size of the first bucket in bytes.
    pub first_bucket_bytes: usize,
    /// Whether parameters that took no part in the forward pass are looked for, each time.
    pub find_unused_parameters: bool,
    /// Whether gradients are views of the buckets, which saves a copy.
    pub gradient_as_bucket_view: bool,
    /// Whether the graph is the same in every step, unused parameters included.
    pub static_graph: bool,
}

impl Default for ReducerOptions {
    fn default() -> Self {
        Self {
            bucket_bytes: 25 * MIB,
            first_bucket_bytes: FIRST_BUCKET_BYTES,
            find_unused_parameters: false,
            gradient_as_bucket_view: false,
            static_graph: false,
        }
    }
}

/// Averages the gradients of some parameters over a group.
///
/// Before each forward pass that is to be reduced call
/// [`prepare_for_forward`](Self::prepare_for_forward), after it
/// [`prepare_for_backward`](Self::prepare_for_backward). The backward pass then reduces
/// every bucket as soon as its gradients are there, and returns when all are averaged.
/// Without these calls the gradients stay local.
///
/// # Collective
/// Every rank of the group makes the same calls.
///
/// # Source
/// `c10d::Reducer`, the engine of `DistributedDataParallel`.
#[derive(Debug)]
pub struct Reducer {
    handle: NonNull<ffi::Reducer>,
    group: ProcessGroup,
    /// The parameters' names, in the model's order.
    names: Vec<String>,
    find_unused: bool,
    hooked: bool,
}

// SAFETY: the reducer takes its own mutex in every entry point, and is moved here, not shared.
unsafe impl Send for Reducer {}

impl Drop for Reducer {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is not used after. Nobody is left to hear of an error.
        let _ = unsafe { check("drop reducer", ffi::acc_reducer_free(self.handle.as_ptr())) };
    }
}

type Hook = Mutex<Box<dyn FnMut(&GradBucket) -> Result<Future, BoxError> + Send>>;

impl Reducer {
    /// A reducer for named parameters that require gradients, in the model's order.
    ///
    /// The names appear in errors about unused parameters.
    ///
    /// # Errors
    /// [`Error::Argument`] without parameters, or for one that takes no gradient; what
    /// libtorch refuses.
    pub fn new(
        group: &ProcessGroup,
        parameters: &[(String, Tensor)],
        options: &ReducerOptions,
    ) -> Result<Self> {
        let operation = "reducer";
        if parameters.is_empty() {
            return Err(Error::Argument {
                operation,
                expected: "at least one parameter that requires a gradient".to_owned(),
                found: "none".to_owned(),
            });
        }
        if let Some((name, _)) = parameters
            .iter()
            .find(|(_, tensor)| !tensor.requires_grad() || !matches!(tensor.f_is_leaf(), Ok(true)))
        {
            return Err(Error::Argument {
                operation,
                expected: "leaves that require a gradient".to_owned(),
                found: format!("`{name}`, which is not one"),
            });
        }
        let tensors = raw_list(parameters.iter().map(|(_, tensor)| tensor));
        let names: Vec<_> = parameters
            .iter()
            .map(|(name, _)| name.as_ptr().cast())
            .collect();
        let lengths: Vec<usize> = parameters.iter().map(|(name, _)| name.len()).collect();
        let limits = initial_limits(options);
        let raw_options = ffi::ReducerOptions {
            bucket_bytes: bytes(options.bucket_bytes),
            first_bucket_bytes: bytes(options.first_bucket_bytes),
            find_unused: options.find_unused_parameters,
            bucket_view: options.gradient_as_bucket_view,
            static_graph: options.static_graph,
        };
        let mut out = std::ptr::null_mut();
        // SAFETY: group, tensors and names are valid for the call, and all lists have one length;
        // on success `out` is an owned handle.
        unsafe {
            check(
                operation,
                ffi::acc_reducer_new(
                    group.raw(),
                    tensors.as_ptr(),
                    tensors.len(),
                    names.as_ptr(),
                    lengths.as_ptr(),
                    limits.as_ptr(),
                    limits.len(),
                    &raw_options,
                    &mut out,
                ),
            )?;
        }
        let handle = NonNull::new(out).ok_or(Error::Unavailable {
            operation,
            needed: "a reducer",
            remedy: "libtorch returned none",
        })?;
        Ok(Self {
            handle,
            group: group.clone(),
            names: parameters.iter().map(|(name, _)| name.clone()).collect(),
            find_unused: options.find_unused_parameters,
            hooked: false,
        })
    }

    /// Call before a forward pass whose gradients are to be reduced.
    ///
    /// # Errors
    /// None that is known.
    pub fn prepare_for_forward(&self) -> Result<()> {
        self.call("prepare for forward", |reducer| {
            // SAFETY: the handle is alive.
            unsafe { ffi::acc_reducer_prepare_for_forward(reducer) }
        })
    }

    /// Puts parameters into buckets in the order in which their gradients came, once.
    ///
    /// Call before each forward pass. Answers whether it did.
    ///
    /// # Errors
    /// As [`prepare_for_backward`](Self::prepare_for_backward), and as a broadcast, since
    /// rank 0's order counts.
    pub fn rebuild_buckets(&self) -> Result<bool> {
        let mut rebuilt = false;
        self.call("rebuild buckets", |reducer| {
            // SAFETY: the handle is alive and the answer is written before it is read.
            unsafe { ffi::acc_reducer_rebuild_buckets(reducer, &mut rebuilt) }
        })?;
        Ok(rebuilt)
    }

    /// Call between a forward pass and the backward pass that reduces.
    ///
    /// `outputs` are those of the forward pass; they are looked at where unused parameters
    /// are to be found, and in the first pass of a static graph.
    ///
    /// # Errors
    /// [`Error::UnusedParameters`] if parameters of the last pass got no gradient; an error
    /// of libtorch if a static graph comes without an output that requires a gradient.
    pub fn prepare_for_backward(&self, outputs: &[Tensor]) -> Result<()> {
        let list = raw_list(outputs);
        self.call("prepare for backward", |reducer| {
            // SAFETY: the handle and the outputs are alive; the list is valid for the call.
            unsafe { ffi::acc_reducer_prepare_for_backward(reducer, list.as_ptr(), list.len()) }
        })
    }

    /// Lets `hook` communicate each bucket instead of the plain average.
    ///
    /// The hook returns a future of the averaged buffer. It runs inside the backward
    /// pass, once per bucket, in the order of their numbers.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is a hook already.
    pub fn set_hook(
        &mut self,
        hook: impl FnMut(&GradBucket) -> Result<Future, BoxError> + Send + 'static,
    ) -> Result<()> {
        unsafe extern "C" fn call(
            closure: *mut c_void,
            bucket: *mut ffi::GradBucket,
            out: *mut *mut ffi::Future,
        ) -> *mut Failure {
            run(|| {
                // SAFETY: C++ passes the closure it was given, a bucket that outlives the call, and
                // a place for the result.
                let hook = unsafe { &*closure.cast::<Hook>() };
                let bucket = NonNull::new(bucket).ok_or("the reducer gave no bucket")?;
                // SAFETY: as above.
                let bucket = unsafe { GradBucket::from_raw(bucket) };
                let mut hook = hook
                    .lock()
                    .map_err(|_| "the communication hook panicked before".to_owned())?;
                let future = (*hook)(&bucket)?;
                // SAFETY: as above; C++ takes the handle over.
                unsafe { *out = future.into_raw() };
                Ok(())
            })
        }
        self.claim_hook()?;
        let closure: Hook = Mutex::new(Box::new(hook));
        self.call("communication hook", |reducer| {
            // SAFETY: the closure is given up together with the functions that fit its type.
            unsafe { ffi::acc_reducer_hook(reducer, give(closure), call, drop_box::<Hook>) }
        })
    }

    /// Sends gradients as float16 or bfloat16 and averages them in that precision.
    ///
    /// # Errors
    /// [`Error::Argument`] for another kind, or if there is a hook already.
    ///
    /// # Source
    /// `fp16_compress_hook` and `bf16_compress_hook`.
    pub fn compress(&mut self, kind: Kind) -> Result<()> {
        match kind {
            Kind::Half => {
                self.claim_hook()?;
                self.call("float16 hook", |reducer| {
                    // SAFETY: the handle is alive.
                    unsafe { ffi::acc_reducer_builtin_hook(reducer, true) }
                })
            }
            Kind::BFloat16 => {
                let group = self.group.clone();
                self.set_hook(move |bucket| Ok(compressed(&group, &bucket.buffer()?, kind)?))
            }
            other => Err(Error::Argument {
                operation: "compress gradients",
                expected: "Half or BFloat16".to_owned(),
                found: format!("{other:?}"),
            }),
        }
    }

    fn claim_hook(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.hooked, true) {
            return Err(Error::Argument {
                operation: "communication hook",
                expected: "one hook for a reducer".to_owned(),
                found: "a second one".to_owned(),
            });
        }
        Ok(())
    }

    fn call(
        &self,
        operation: &'static str,
        call: impl FnOnce(*mut ffi::Reducer) -> *mut ffi::Status,
    ) -> Result<()> {
        // SAFETY: `call` calls one entry point with this reducer.
        unsafe { outcome(call(self.handle.as_ptr())) }
            .map_err(|e| self.explain(e.into_place_error(operation, self.group.place())))
    }

    /// libtorch counts the parameters that got no gradient; their names say more.
    fn explain(&self, error: Error) -> Error {
        let Error::Libtorch { message, .. } = &error else {
            return error;
        };
        let names = named(&self.names, message);
        if names.is_empty() {
            return error;
        }
        let remedy = if self.find_unused {
            "let every output of the forward pass take part in the loss"
        } else {
            "use the parameters in the loss, freeze them, or set `find_unused_parameters`"
        };
        Error::UnusedParameters {
            place: self.group.place().clone(),
            names,
            remedy,
        }
    }
}

/// The names of the parameters that an error of libtorch lists by their numbers.
fn named(names: &[String], message: &str) -> Vec<String> {
    let Some((_, list)) =
        message.split_once("Parameter indices which did not receive grad for rank ")
    else {
        return Vec::new();
    };
    let numbers = list.lines().next().and_then(|line| line.split_once(": "));
    let numbers = numbers
        .map(|(_, numbers)| numbers.split_whitespace())
        .into_iter()
        .flatten();
    numbers
        .map_while(|number| names.get(number.parse::<usize>().ok()?).cloned())
        .collect()
}

/// Checks that all ranks of a group have parameters of the same number, shapes and kinds.
///
/// # Errors
/// Names the first parameter that differs from rank 0's.
pub fn verify_parameters(group: &ProcessGroup, parameters: &[Tensor]) -> Result<()> {
    let list = raw_list(parameters);
    // SAFETY: group and tensors are alive; the list is valid for the call.
    unsafe {
        outcome(ffi::acc_verify_params(
            group.raw(),
            list.as_ptr(),
            list.len(),
        ))
    }
    .map_err(|e| e.into_place_error("compare parameters over ranks", group.place()))
}

/// A future of the average of `buffer` over the group, computed in `kind`, in the buffer itself.
fn compressed(group: &ProcessGroup, buffer: &Tensor, kind: Kind) -> Result<Future> {
    let ranks = i64::try_from(group.size()).unwrap_or(i64::MAX);
    let small = tch::no_grad(|| buffer.f_to_kind(kind)?.f_div_scalar_(ranks))?;
    let done = group.all_reduce_async(&small, ReduceOp::Sum)?.future()?;
    let buffer = buffer.shallow_clone();
    done.then(move |_| {
        tch::no_grad(|| buffer.shallow_clone().f_copy_(&small))?;
        Ok(buffer)
    })
}

/// Everything in one bucket at first, since the real order of gradients is not known yet;
/// with unused parameters the order is never learned.
fn initial_limits(options: &ReducerOptions) -> Vec<usize> {
    if options.find_unused_parameters && !options.static_graph {
        vec![options.first_bucket_bytes, options.bucket_bytes]
    } else {
        vec![usize::MAX >> 1]
    }
}

fn bytes(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_parameters_become_their_names() {
        let names = ["first", "second", "third"].map(str::to_owned);
        let message = "Not finished. Parameter indices which did not receive grad for rank 1: 0 2\n\
                       In addition, you can set 7 variables";
        assert_eq!(named(&names, message), ["first", "third"]);
        assert!(named(&names, "another error: 0 1").is_empty());
    }
}
