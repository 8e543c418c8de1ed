//! Streams of accelerators: queues of work that do not wait for one another.

use tch::{Device, Tensor};

use crate::device::raw_device;
use crate::status::{check, raw};
use crate::{Result, ffi};

/// A queue of an accelerator beside the one that a program computes on, for copies that go on
/// meanwhile.
#[derive(Debug)]
pub struct SideStream {
    device_type: i32,
    device_index: i32,
    id: i64,
}

impl SideStream {
    /// One of the device's streams.
    ///
    /// # Errors
    /// If there is no such device, or it has no streams, as the CPU has none.
    pub fn new(device: Device) -> Result<Self> {
        let (device_type, device_index) = raw_device(device)?;
        let mut id = 0;
        // SAFETY: the number is written before it is read.
        unsafe {
            check(
                "stream",
                ffi::acc_stream_from_pool(device_type, device_index, &mut id),
            )?;
        }
        Ok(Self {
            device_type,
            device_index,
            id,
        })
    }

    /// Runs `run` with everything that it queues on this stream, waits until that is done, and goes
    /// on with the stream that was the thread's own before.
    ///
    /// Whoever uses the resulting tensors elsewhere says so with [`used_here`].
    ///
    /// # Errors
    /// Whatever a queued kernel failed with.
    pub fn run<R>(&self, run: impl FnOnce() -> R) -> Result<R> {
        let restore = Restore {
            stream: self,
            before: self.exchange(self.id)?,
        };
        let result = run();
        drop(restore);
        // SAFETY: no pointer is involved.
        unsafe {
            check(
                "stream synchronisation",
                ffi::acc_synchronize_stream(self.device_type, self.device_index, self.id),
            )?;
        }
        Ok(result)
    }

    fn exchange(&self, id: i64) -> Result<i64> {
        let mut before = 0;
        // SAFETY: the number is written before it is read; the id is one that libtorch gave for
        // this device.
        unsafe {
            check(
                "current stream",
                ffi::acc_exchange_stream(self.device_type, self.device_index, id, &mut before),
            )?;
        }
        Ok(before)
    }
}

/// Makes the thread's own stream the current one again, also when the work panics.
struct Restore<'s> {
    stream: &'s SideStream,
    before: i64,
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        // It was the current one before, so that it cannot be refused.
        let _restored = self.stream.exchange(self.before);
    }
}

/// Notes that the stream of this thread uses a tensor that was made on another one: its memory is
/// then given to nobody else while that is under way. Nothing for tensors on the CPU.
///
/// # Errors
/// If the tensor has no storage.
pub fn used_here(tensor: &Tensor) -> Result<()> {
    // SAFETY: the tensor is alive.
    unsafe {
        check(
            "use on a stream",
            ffi::acc_used_by_current_stream(raw(tensor)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    #[test]
    fn the_cpu_has_no_streams_and_needs_none() -> Result<()> {
        if crate::device::count(Device::Cuda(0)) == 0 {
            assert!(SideStream::new(Device::Cuda(0)).is_err());
        }
        used_here(&Tensor::f_zeros([1], (Kind::Float, Device::Cpu))?)
    }
}
