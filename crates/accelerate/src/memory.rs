//! Memory: what fits, what is held, and how to give it back.

mod available;
mod out_of_memory;
mod search;

pub use accelerate_torch::memory::{
    CudaMemory, cuda as cuda_memory, empty_cuda_cache, keep_freed_memory,
};
pub use available::available_memory;
pub use out_of_memory::is_out_of_memory;
pub use search::{BatchSizeSearch, find_executable_batch_size};

use std::sync::Once;

use accelerate_plan::env::{Environment, MALLOC_MMAP_THRESHOLD, MALLOC_TRIM_THRESHOLD};
use tch::Device;

use crate::Result;

/// How much freed memory a process that computes on a CPU keeps.
const KEPT: usize = 256 << 20;

/// Sets the allocator up for training, once, where the device's memory is the process's own.
///
/// Every step frees what the next one needs again. What goes back to the system in between
/// comes back page by page, each of which is cleared first. Values of the user's own
/// (`MALLOC_TRIM_THRESHOLD_`, `MALLOC_MMAP_THRESHOLD_`) stay.
pub(crate) fn keep_for_next_step(device: Device, env: &Environment) -> Result<()> {
    static SET: Once = Once::new();
    let chosen =
        env.get(&MALLOC_TRIM_THRESHOLD)?.is_some() || env.get(&MALLOC_MMAP_THRESHOLD)?.is_some();
    if device == Device::Cpu && !chosen {
        SET.call_once(|| {
            let _has_switch = keep_freed_memory(KEPT);
        });
    }
    Ok(())
}

/// Drops `objects` and gives the memory that the device's allocator then caches back.
///
/// Ownership does the work: what others still hold lives on.
///
/// # Errors
/// What a kernel that was still queued failed with.
///
/// # Source
/// `accelerate.utils.release_memory`, which gives `None`s back to be assigned.
pub fn release_memory<T>(objects: T) -> Result<()> {
    drop(objects);
    Ok(empty_cuda_cache()?)
}
