//! What the allocators do and hold.

use tch::Device;

use crate::device::raw_device;
use crate::status::check;
use crate::{Result, ffi};

/// Keeps up to `bytes` bytes of freed memory in the process instead of giving it back.
///
/// On the CPU, giving memory back and faulting it in again can cost more than exchanging
/// its content with another rank. Single blocks above 32 MiB are given back in any case.
/// Call it once, at the start of a process that trains. Answers whether the allocator has
/// such a switch (glibc's has).
#[must_use]
pub fn keep_freed_memory(bytes: usize) -> bool {
    // SAFETY: no pointer is involved; the allocator's own lock makes the call thread-safe.
    unsafe { ffi::acc_keep_freed_memory(bytes) }
}

/// Gives memory that was freed and kept in the process back to the system, once.
///
/// After something large is gone that will not come again, such as whole parameters that were cut
/// into shards. Answers whether the allocator (glibc's) gave anything back.
pub fn give_back_freed_memory() -> bool {
    // SAFETY: no pointer is involved; the allocator's own lock makes the call thread-safe.
    unsafe { ffi::acc_give_back_freed_memory() }
}

/// Memory of one CUDA device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaMemory {
    /// In tensors now.
    pub allocated: u64,
    /// In tensors at most, since the start.
    pub peak: u64,
    /// Taken from the driver, tensors and cache together.
    pub reserved: u64,
}

/// What libtorch's caching allocator holds on a CUDA device.
///
/// # Errors
/// If libtorch was built without CUDA, or there is no such device.
pub fn cuda(device: i32) -> Result<CudaMemory> {
    let (mut allocated, mut peak, mut reserved) = (0, 0, 0);
    // SAFETY: the three numbers are written before they are read.
    unsafe {
        check(
            "CUDA memory statistics",
            ffi::acc_cuda_memory(device, &mut allocated, &mut peak, &mut reserved),
        )?;
    }
    let bytes = |n: i64| u64::try_from(n).unwrap_or(0);
    Ok(CudaMemory {
        allocated: bytes(allocated),
        peak: bytes(peak),
        reserved: bytes(reserved),
    })
}

/// Memory of an accelerator as its driver counts it, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceleratorMemory {
    /// That nobody uses.
    pub free: u64,
    /// All of it.
    pub total: u64,
}

/// How much memory an accelerator has, and how much of it is free.
///
/// Asking touches the device, so that what every process that uses it needs there is not free.
///
/// # Errors
/// If there is no such device, or its driver does not tell.
pub fn accelerator(device: Device) -> Result<AcceleratorMemory> {
    let (device_type, index) = raw_device(device)?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: both numbers are written before they are read.
    unsafe {
        check(
            "accelerator memory",
            ffi::acc_accelerator_memory(device_type, index, &mut free, &mut total),
        )?;
    }
    Ok(AcceleratorMemory { free, total })
}

/// Gives unused cached memory of all CUDA devices back to the driver; nothing without CUDA.
///
/// # Errors
/// Whatever a queued kernel failed with.
pub fn empty_cuda_cache() -> Result<()> {
    // SAFETY: no pointer is involved.
    unsafe { check("empty CUDA cache", ffi::acc_cuda_empty_cache()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn glibc_can_keep_freed_memory() {
        assert!(keep_freed_memory(256 << 20));
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn freed_memory_goes_back_to_the_system() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages = text.split(' ').nth(1).unwrap().parse::<usize>().unwrap();
            pages * 4096
        };
        assert!(keep_freed_memory(256 << 20));
        // Blocks that are small enough to be kept, the last of which stays.
        let mut blocks: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 1 << 20]).collect();
        let _last = blocks.pop();
        drop(blocks);
        let kept = resident();
        let _gave = give_back_freed_memory();
        assert!(resident() + (32 << 20) < kept, "{} of {kept}", resident());
    }

    #[test]
    fn statistics_of_cuda_say_what_is_missing() {
        if crate::has_nccl() {
            return;
        }
        assert!(accelerator(Device::Cuda(0)).is_err());
        let error = cuda(0).unwrap_err().to_string();
        assert!(error.contains("without CUDA"), "{error}");
        empty_cuda_cache().unwrap();
    }
}
