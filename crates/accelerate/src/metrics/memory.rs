//! The memory that a training takes.

use std::fs;

use tch::Device;

/// Bytes in use, and the most that were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MemoryUse {
    pub(super) now: Option<u64>,
    pub(super) peak: Option<u64>,
}

impl MemoryUse {
    /// Of tensors on a GPU; of the whole process where the device's memory is the process's own.
    pub(super) fn on(device: Device) -> Self {
        match device {
            Device::Cuda(index) => {
                let held = i32::try_from(index).ok();
                let held = held.and_then(|index| accelerate_torch::memory::cuda(index).ok());
                Self {
                    now: held.map(|memory| memory.allocated),
                    peak: held.map(|memory| memory.peak),
                }
            }
            // Only Linux tells it as text; elsewhere nothing is known.
            _ => fs::read_to_string("/proc/self/status").map_or(Self::default(), |text| Self {
                now: bytes(&text, "VmRSS:"),
                peak: bytes(&text, "VmHWM:"),
            }),
        }
    }
}

/// The number behind a name, which is in kibibytes.
fn bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_process_is_read() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(bytes(status, "VmRSS:"), Some(1 << 20));
        assert_eq!(bytes(status, "VmHWM:"), Some(2 << 20));
        assert_eq!(bytes(status, "VmSwap:"), None);
        if cfg!(target_os = "linux") {
            let memory = MemoryUse::on(Device::Cpu);
            assert!(memory.now > Some(1 << 20), "{memory:?}");
            assert!(memory.peak >= memory.now, "{memory:?}");
        }
    }
}
