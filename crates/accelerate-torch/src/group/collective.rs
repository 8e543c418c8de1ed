//! Operations between the ranks of a group.
//!
//! Each has a blocking form and one that starts it and returns [`Work`]. All ranks of
//! the group call the same operation with tensors of the same shape and kind, in the
//! same order. The tensors are contiguous.

use std::ffi::c_int;
use std::ptr;
use std::time::Duration;

use tch::Tensor;

use super::{ProcessGroup, ReduceOp, Work, rank_number};
use crate::ffi::{self, Status};
use crate::profiler::ProfileRange;
use crate::status::{outcome, raw, raw_list};
use crate::store::millis;
use crate::{Error, Place, Result};

/// The group's own timeout.
pub(super) const GROUP_TIMEOUT: i64 = -1;

impl ProcessGroup {
    pub(super) fn start(
        &self,
        operation: &'static str,
        tensors: &[&Tensor],
        start: impl FnOnce(*mut *mut ffi::Work) -> *mut Status,
    ) -> Result<Work> {
        self.is_open(operation)?;
        let _range = self.range(operation, tensors)?;
        let mut work = ptr::null_mut();
        // SAFETY: `start` calls one entry point, which owns neither handle nor tensors.
        unsafe { outcome(start(&mut work)) }
            .map_err(|e| e.into_place_error(operation, self.place()))?;
        let tensors = tensors
            .iter()
            .map(|tensor| tensor.shallow_clone())
            .collect();
        // SAFETY: on success the entry point gave the work up.
        Ok(unsafe { Work::new(operation, self.place().clone(), work, tensors) })
    }

    /// Names an operation in profiles, with what it carries and among whom.
    pub(super) fn range(
        &self,
        operation: &'static str,
        tensors: &[&Tensor],
    ) -> Result<Option<ProfileRange>> {
        ProfileRange::while_recording(|| {
            let bytes: usize = tensors.iter().map(|tensor| bytes_of(tensor)).sum();
            let Place { group, world, .. } = self.place();
            format!("{operation}: {bytes} bytes, group {group} of {world}")
        })
    }

    /// Replaces the tensor on every rank by the reduction over all ranks.
    ///
    /// # Shapes
    /// - tensor: `[...]`, the same on every rank
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::ConnectionLost`], or what the backend refuses.
    pub fn all_reduce(&self, tensor: &Tensor, op: ReduceOp) -> Result<()> {
        self.all_reduce_async(tensor, op)?.wait()
    }

    /// Starts [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// What the backend refuses at once.
    pub fn all_reduce_async(&self, tensor: &Tensor, op: ReduceOp) -> Result<Work> {
        self.all_reduce_ms(tensor, op, GROUP_TIMEOUT)
    }

    /// [`all_reduce`](Self::all_reduce) with a timeout of its own.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn all_reduce_timeout(
        &self,
        tensor: &Tensor,
        op: ReduceOp,
        timeout: Duration,
    ) -> Result<()> {
        self.all_reduce_ms(tensor, op, millis(timeout))?
            .wait_timeout(timeout)
    }

    fn all_reduce_ms(&self, tensor: &Tensor, op: ReduceOp, timeout: i64) -> Result<Work> {
        let averaged = self.averaged(op, &[tensor])?;
        let list = [raw(tensor)];
        let work = self.start("all-reduce", &[tensor], |out| {
            // SAFETY: group and tensor are alive; the list is valid for the call.
            unsafe {
                ffi::acc_all_reduce(
                    self.raw(),
                    list.as_ptr(),
                    1,
                    averaged.op.number(),
                    timeout,
                    out,
                )
            }
        })?;
        Ok(averaged.finish(work))
    }

    /// Copies the tensor of rank `root` into that of every rank.
    ///
    /// # Shapes
    /// - tensor: `[...]`, the same on every rank
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn broadcast(&self, tensor: &Tensor, root: usize) -> Result<()> {
        self.broadcast_async(tensor, root)?.wait()
    }

    /// Starts [`broadcast`](Self::broadcast).
    ///
    /// # Errors
    /// [`Error::Argument`] for a root that is no rank of the group.
    pub fn broadcast_async(&self, tensor: &Tensor, root: usize) -> Result<Work> {
        let root = self.member("broadcast", root)?;
        self.start("broadcast", &[tensor], |out| {
            // SAFETY: group and tensor are alive.
            unsafe { ffi::acc_broadcast(self.raw(), raw(tensor), root, GROUP_TIMEOUT, out) }
        })
    }

    /// Copies many tensors of rank `root` to every rank, packed into buffers of at most
    /// `buffer_bytes` bytes.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub fn broadcast_coalesced(
        &self,
        tensors: &[Tensor],
        buffer_bytes: usize,
        root: usize,
    ) -> Result<()> {
        let operation = "broadcast of many tensors";
        let root = self.member(operation, root)?;
        let list = raw_list(tensors);
        // SAFETY: group and tensors are alive; the list is valid for the call.
        unsafe {
            outcome(ffi::acc_broadcast_coalesced(
                self.raw(),
                list.as_ptr(),
                list.len(),
                buffer_bytes,
                root,
            ))
        }
        .map_err(|e| e.into_place_error(operation, self.place()))
    }

    /// Replaces the tensor on rank `root` by the reduction over all ranks.
    ///
    /// The content of the others' tensors is undefined after.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn reduce(&self, tensor: &Tensor, root: usize, op: ReduceOp) -> Result<()> {
        self.reduce_async(tensor, root, op)?.wait()
    }

    /// Starts [`reduce`](Self::reduce).
    ///
    /// # Errors
    /// [`Error::Argument`] for a root that is no rank of the group.
    pub fn reduce_async(&self, tensor: &Tensor, root: usize, op: ReduceOp) -> Result<Work> {
        let averaged = self.averaged(op, &[tensor])?;
        let root = self.member("reduce", root)?;
        let work = self.start("reduce", &[tensor], |out| {
            // SAFETY: group and tensor are alive.
            unsafe {
                ffi::acc_reduce(
                    self.raw(),
                    raw(tensor),
                    root,
                    averaged.op.number(),
                    GROUP_TIMEOUT,
                    out,
                )
            }
        })?;
        Ok(averaged.finish(work))
    }

    /// Writes the tensor of rank `i` to `outputs[i]`, on every rank.
    ///
    /// # Shapes
    /// - outputs: one tensor for each rank, shaped as `input`
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); [`Error::Argument`] for a wrong number of outputs.
    pub fn all_gather(&self, outputs: &[Tensor], input: &Tensor) -> Result<()> {
        self.all_gather_async(outputs, input)?.wait()
    }

    /// Starts [`all_gather`](Self::all_gather).
    ///
    /// # Errors
    /// [`Error::Argument`] for a wrong number of outputs.
    pub fn all_gather_async(&self, outputs: &[Tensor], input: &Tensor) -> Result<Work> {
        self.one_for_each("all-gather", outputs)?;
        let list = raw_list(outputs);
        self.start("all-gather", &with(outputs, input), |out| {
            // SAFETY: group and tensors are alive; the list is valid for the call.
            unsafe {
                ffi::acc_all_gather(
                    self.raw(),
                    list.as_ptr(),
                    list.len(),
                    raw(input),
                    GROUP_TIMEOUT,
                    out,
                )
            }
        })
    }

    /// Writes the tensors of all ranks one after the other into `output`, on every rank.
    ///
    /// # Shapes
    /// - input: `[n, ...]`
    /// - output: `[world * n, ...]`
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn all_gather_into_tensor(&self, output: &Tensor, input: &Tensor) -> Result<()> {
        self.all_gather_into_tensor_async(output, input)?.wait()
    }

    /// Starts [`all_gather_into_tensor`](Self::all_gather_into_tensor).
    ///
    /// # Errors
    /// What the backend refuses at once.
    pub fn all_gather_into_tensor_async(&self, output: &Tensor, input: &Tensor) -> Result<Work> {
        self.start("all-gather into one tensor", &[output, input], |out| {
            // SAFETY: group and tensors are alive.
            unsafe {
                ffi::acc_all_gather_into(self.raw(), raw(output), raw(input), GROUP_TIMEOUT, out)
            }
        })
    }

    /// Reduces `inputs[i]` over all ranks into `output` on rank `i`.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub fn reduce_scatter(&self, output: &Tensor, inputs: &[Tensor], op: ReduceOp) -> Result<()> {
        self.reduce_scatter_async(output, inputs, op)?.wait()
    }

    /// Starts [`reduce_scatter`](Self::reduce_scatter).
    ///
    /// # Errors
    /// As [`all_gather_async`](Self::all_gather_async).
    pub fn reduce_scatter_async(
        &self,
        output: &Tensor,
        inputs: &[Tensor],
        op: ReduceOp,
    ) -> Result<Work> {
        self.one_for_each("reduce-scatter", inputs)?;
        let averaged = self.averaged(op, &[output])?;
        let list = raw_list(inputs);
        let work = self.start("reduce-scatter", &with(inputs, output), |out| {
            // SAFETY: group and tensors are alive; the list is valid for the call.
            unsafe {
                ffi::acc_reduce_scatter(
                    self.raw(),
                    raw(output),
                    list.as_ptr(),
                    list.len(),
                    averaged.op.number(),
                    GROUP_TIMEOUT,
                    out,
                )
            }
        })?;
        Ok(averaged.finish(work))
    }

    /// Reduces part `i` of `input` over all ranks into `output` on rank `i`.
    ///
    /// # Shapes
    /// - input: `[world * n, ...]`
    /// - output: `[n, ...]`
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn reduce_scatter_tensor(
        &self,
        output: &Tensor,
        input: &Tensor,
        op: ReduceOp,
    ) -> Result<()> {
        self.reduce_scatter_tensor_async(output, input, op)?.wait()
    }

    /// Starts [`reduce_scatter_tensor`](Self::reduce_scatter_tensor).
    ///
    /// # Errors
    /// What the backend refuses at once.
    pub fn reduce_scatter_tensor_async(
        &self,
        output: &Tensor,
        input: &Tensor,
        op: ReduceOp,
    ) -> Result<Work> {
        let averaged = self.averaged(op, &[output])?;
        let work = self.start("reduce-scatter of one tensor", &[output, input], |out| {
            // SAFETY: group and tensors are alive.
            unsafe {
                ffi::acc_reduce_scatter_from(
                    self.raw(),
                    raw(output),
                    raw(input),
                    averaged.op.number(),
                    GROUP_TIMEOUT,
                    out,
                )
            }
        })?;
        Ok(averaged.finish(work))
    }

    /// Writes the tensor of rank `i` to `outputs[i]` on rank `root`; others pass no outputs.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub fn gather(&self, outputs: &[Tensor], input: &Tensor, root: usize) -> Result<()> {
        self.gather_async(outputs, input, root)?.wait()
    }

    /// Starts [`gather`](Self::gather).
    ///
    /// # Errors
    /// As [`all_gather_async`](Self::all_gather_async).
    pub fn gather_async(&self, outputs: &[Tensor], input: &Tensor, root: usize) -> Result<Work> {
        if self.rank() == root {
            self.one_for_each("gather", outputs)?;
        }
        let root = self.member("gather", root)?;
        let list = raw_list(outputs);
        self.start("gather", &with(outputs, input), |out| {
            // SAFETY: group and tensors are alive; the list is valid for the call.
            unsafe {
                ffi::acc_gather(
                    self.raw(),
                    list.as_ptr(),
                    list.len(),
                    raw(input),
                    root,
                    GROUP_TIMEOUT,
                    out,
                )
            }
        })
    }

    /// Writes `inputs[i]` of rank `root` to `output` on rank `i`; others pass no inputs.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    pub fn scatter(&self, output: &Tensor, inputs: &[Tensor], root: usize) -> Result<()> {
        self.scatter_async(output, inputs, root)?.wait()
    }

    /// Starts [`scatter`](Self::scatter).
    ///
    /// # Errors
    /// As [`all_gather_async`](Self::all_gather_async).
    pub fn scatter_async(&self, output: &Tensor, inputs: &[Tensor], root: usize) -> Result<Work> {
        if self.rank() == root {
            self.one_for_each("scatter", inputs)?;
        }
        let root = self.member("scatter", root)?;
        let list = raw_list(inputs);
        self.start("scatter", &with(inputs, output), |out| {
            // SAFETY: group and tensors are alive; the list is valid for the call.
            unsafe {
                ffi::acc_scatter(
                    self.raw(),
                    raw(output),
                    list.as_ptr(),
                    list.len(),
                    root,
                    GROUP_TIMEOUT,
                    out,
                )
            }
        })
    }

    pub(super) fn member(&self, operation: &'static str, rank: usize) -> Result<c_int> {
        if rank < self.size() {
            return Ok(rank_number(rank));
        }
        Err(Error::Argument {
            operation,
            expected: format!("a rank below {}", self.size()),
            found: rank.to_string(),
        })
    }

    pub(super) fn one_for_each(&self, operation: &'static str, tensors: &[Tensor]) -> Result<()> {
        if tensors.len() == self.size() {
            return Ok(());
        }
        Err(Error::Argument {
            operation,
            expected: format!("one tensor for each of {} ranks", self.size()),
            found: tensors.len().to_string(),
        })
    }
}

fn bytes_of(tensor: &Tensor) -> usize {
    tensor.numel() * tensor.kind().elt_size_in_bytes()
}

fn with<'a>(list: &'a [Tensor], one: &'a Tensor) -> Vec<&'a Tensor> {
    list.iter().chain([one]).collect()
}
