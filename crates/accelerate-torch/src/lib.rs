//! The boundary to libtorch.
//!
//! Everything of PyTorch's engine that [`tch`] does not bind: process groups, gradient
//! reduction, hooks, storage, random generators, autocast, the fused kernels and the
//! profiler, as a safe API. All `unsafe` code and all C++ of the project is here.

#![expect(unsafe_code, reason = "this crate is the boundary to C++")]

mod blocked;
mod bucket;
mod callback;
mod error;
mod ffi;
mod future;
mod generator;
mod group;
mod kind;
mod reducer;
mod status;
mod store;

pub mod autocast;
pub mod autograd;
pub mod deterministic;
pub mod device;
pub mod foreach;
pub mod fused;
pub mod memory;
pub mod meta;
pub mod profiler;
pub mod scratch;
pub mod storage;
pub mod stream;

pub use blocked::{Blocked, time_blocked};
pub use bucket::{GradBucket, assign_buckets};
pub use callback::BoxError;
pub use error::{Error, ExceptionKind, Place, Result};
pub use future::{Future, Promise, promise};
pub use generator::Generator;
pub use group::{
    Backend, GroupOptions, ProcessGroup, ReduceOp, Rendezvous, StoreServer, Waiting, Work,
};
pub use reducer::{FIRST_BUCKET_BYTES, MIB, Reducer, ReducerOptions, verify_parameters};
pub use store::{Store, TcpStoreOptions};

/// Whether this build can use NCCL, that is, was compiled against a libtorch with CUDA.
#[must_use]
pub fn has_nccl() -> bool {
    // SAFETY: no pointer is involved.
    unsafe { ffi::acc_has_nccl() }
}
