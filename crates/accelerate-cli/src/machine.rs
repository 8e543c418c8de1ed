//! What this machine has: devices, cores, memory and how they are wired.
//!
//! Everything is read from files of the kernel and its drivers in a few milliseconds. No driver is
//! loaded and no Python is started, so that a launcher never takes memory on a device or waits for
//! one. All files are looked up below a [`Root`].

mod cores;
mod cpu_list;
mod devices;
mod memory;
mod nccl;
mod numa;
mod root;

pub(crate) use cores::Cores;
pub(crate) use cpu_list::CpuList;
pub(crate) use devices::{Bf16, Devices, Kind, device_memory};
#[cfg(test)]
pub(crate) use devices::{Device, Visible};
pub(crate) use memory::Memory;
pub(crate) use nccl::{NcclWorkaround, nccl_workaround};
pub(crate) use numa::Numa;
pub(crate) use root::Root;
#[cfg(test)]
pub(crate) use root::pretend;
