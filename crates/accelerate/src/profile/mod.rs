//! Where the time goes: libtorch's profiler with PyTorch's schedules, averages and tables.
//!
//! [`Accelerator::profile`](crate::Accelerator::profile) starts one.

mod averages;
mod events;
mod kwargs;
mod memory_records;
mod nesting;
mod profiler;
mod schedule;
mod table;
#[cfg(test)]
mod tests;
mod units;

pub use accelerate_torch::profiler::{Activity, EventPlace, ProfileRange};
pub use averages::{EventAverages, FunctionEventAvg, GroupBy};
pub use events::{FunctionEvent, FunctionEvents, Kernel};
pub use kwargs::{ProfileKwargs, TraceHandler};
pub use profiler::Profiler;
pub use schedule::{ProfilerAction, Schedule};
pub use table::{Table, TimeUnit};
