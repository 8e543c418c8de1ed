use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;

use accelerate_torch::profiler::{Activity, ProfilerOptions};
use tch::Device;

use super::{Profiler, Schedule};
use crate::Result;

/// What is done with each finished trace.
pub type TraceHandler = Rc<dyn Fn(&Profiler) -> Result<()>>;

/// What a profiler looks at, when it records, and where its traces go.
///
/// # Source
/// `accelerate.ProfileKwargs`.
#[derive(Clone, Default)]
pub struct ProfileKwargs {
    /// What is looked at; `None` is the CPU, and the GPU where the job computes on one.
    pub activities: Option<HashSet<Activity>>,
    /// When it records; `None` records from start to end.
    pub schedule_option: Option<Schedule>,
    /// Called with the profiler each time a trace is ready.
    pub on_trace_ready: Option<TraceHandler>,
    /// Whether the shapes of inputs are recorded.
    pub record_shapes: bool,
    /// Whether allocations are recorded.
    pub profile_memory: bool,
    /// Whether call stacks are recorded. libtorch knows no stack of a Rust program: name the ranges
    /// that matter with [`accelerate_torch::profiler::ProfileRange`] instead.
    pub with_stack: bool,
    /// Whether floating-point operations of products and convolutions are counted.
    pub with_flops: bool,
    /// Whether the hierarchy of modules is recorded, where libtorch knows one.
    pub with_modules: bool,
    /// The folder that gets `profile_<rank>.json` of every rank when the profiler is finished.
    pub output_trace_dir: Option<PathBuf>,
}

impl ProfileKwargs {
    /// As libtorch is told, on a job's device.
    pub(super) fn options(&self, device: Device) -> ProfilerOptions {
        let usual = || match device {
            Device::Cuda(_) => HashSet::from([Activity::Cpu, Activity::Cuda]),
            _ => HashSet::from([Activity::Cpu]),
        };
        ProfilerOptions {
            activities: self.activities.clone().unwrap_or_else(usual),
            // Operations are counted by the shapes of their inputs.
            record_shapes: self.record_shapes || self.with_flops,
            profile_memory: self.profile_memory,
            with_stack: self.with_stack,
            with_flops: self.with_flops,
            with_modules: self.with_modules,
        }
    }
}

impl fmt::Debug for ProfileKwargs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProfileKwargs")
            .field("activities", &self.activities)
            .field("schedule_option", &self.schedule_option)
            .field("on_trace_ready", &self.on_trace_ready.is_some())
            .field("record_shapes", &self.record_shapes)
            .field("profile_memory", &self.profile_memory)
            .field("with_stack", &self.with_stack)
            .field("with_flops", &self.with_flops)
            .field("with_modules", &self.with_modules)
            .field("output_trace_dir", &self.output_trace_dir)
            .finish()
    }
}
