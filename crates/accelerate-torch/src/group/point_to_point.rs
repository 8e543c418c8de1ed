//! Sends, receives and barriers.

use std::ffi::c_int;
use std::time::Duration;

use tch::Tensor;

use super::collective::GROUP_TIMEOUT;
use super::{ProcessGroup, Work};
use crate::ffi;
use crate::status::{outcome, raw};
use crate::store::millis;
use crate::{Error, Result};

impl ProcessGroup {
    /// Sends a tensor to a rank, which [`receive`](Self::receive)s it under the same tag.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn send(&self, tensor: &Tensor, to: usize, tag: u16) -> Result<()> {
        self.send_async(tensor, to, tag)?.wait()
    }

    /// Starts [`send`](Self::send).
    ///
    /// # Errors
    /// [`Error::Argument`] for a rank that is not in the group, or is this one.
    pub fn send_async(&self, tensor: &Tensor, to: usize, tag: u16) -> Result<Work> {
        self.send_tagged(tensor, to, c_int::from(tag))
    }

    pub(super) fn send_tagged(&self, tensor: &Tensor, to: usize, tag: c_int) -> Result<Work> {
        let to = self.peer("send", to)?;
        self.start("send", &[tensor], |out| {
            // SAFETY: group and tensor are alive.
            unsafe { ffi::acc_send(self.raw(), raw(tensor), to, tag, out) }
        })
    }

    /// Receives the tensor that a rank sends under the same tag.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn receive(&self, tensor: &Tensor, from: usize, tag: u16) -> Result<()> {
        self.receive_async(tensor, from, tag)?.wait()
    }

    /// Starts [`receive`](Self::receive).
    ///
    /// # Errors
    /// [`Error::Argument`] for a rank that is not in the group, or is this one.
    pub fn receive_async(&self, tensor: &Tensor, from: usize, tag: u16) -> Result<Work> {
        self.receive_tagged(tensor, from, c_int::from(tag))
    }

    pub(super) fn receive_tagged(&self, tensor: &Tensor, from: usize, tag: c_int) -> Result<Work> {
        let from = self.peer("receive", from)?;
        self.start("receive", &[tensor], |out| {
            // SAFETY: group and tensor are alive.
            unsafe { ffi::acc_receive(self.raw(), raw(tensor), from, tag, out) }
        })
    }

    /// Waits until every rank has come here.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn barrier(&self) -> Result<()> {
        self.barrier_async(None)?.wait()
    }

    /// Starts a [`barrier`](Self::barrier); NCCL needs the index of this rank's device.
    ///
    /// # Errors
    /// What the backend refuses at once.
    pub fn barrier_async(&self, device: Option<usize>) -> Result<Work> {
        let device = device
            .and_then(|index| i64::try_from(index).ok())
            .unwrap_or(-1);
        self.start("barrier", &[], |out| {
            // SAFETY: the group is alive.
            unsafe { ffi::acc_barrier(self.raw(), device, GROUP_TIMEOUT, out) }
        })
    }

    /// A [`barrier`](Self::barrier) whose error names the ranks that did not come. Gloo only.
    ///
    /// # Errors
    /// [`Error::Timeout`] with the missing ranks in its message, on rank 0; the others
    /// learn that rank 0 gave up.
    pub fn monitored_barrier(&self, timeout: Duration) -> Result<()> {
        // SAFETY: the group is alive.
        unsafe {
            outcome(ffi::acc_group_monitored_barrier(
                self.raw(),
                millis(timeout),
                true,
            ))
        }
        .map_err(|e| {
            let message = e.message.clone();
            match e.into_place_error("monitored barrier", self.place()) {
                // Gloo reports missing ranks without saying that time is over.
                Error::Libtorch { .. } if message.contains("failed to pass monitoredBarrier") => {
                    Error::Timeout {
                        operation: "monitored barrier",
                        place: Some(self.place().clone()),
                        message,
                    }
                }
                error => error,
            }
        })
    }

    fn peer(&self, operation: &'static str, rank: usize) -> Result<c_int> {
        if rank == self.rank() {
            return Err(Error::Argument {
                operation,
                expected: "another rank".to_owned(),
                found: format!("this rank, {rank}"),
            });
        }
        self.member(operation, rank)
    }
}
