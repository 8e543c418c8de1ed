//! Where the time goes: libtorch's profiler.

use std::collections::HashSet;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::time::Duration;

use crate::status::{append, check, lossy, target};
use crate::{Error, Result, ffi};

/// What is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activity {
    /// Operations on the CPU.
    Cpu,
    /// Kernels and copies on CUDA.
    Cuda,
}

/// What is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfilerOptions {
    /// What is looked at.
    pub activities: HashSet<Activity>,
    /// The shapes of inputs.
    pub record_shapes: bool,
    /// Allocations.
    pub profile_memory: bool,
    /// The call stack, where libtorch knows one.
    pub with_stack: bool,
    /// Floating-point operations of products and convolutions.
    pub with_flops: bool,
    /// The module hierarchy, where libtorch knows one.
    pub with_modules: bool,
}

impl Default for ProfilerOptions {
    fn default() -> Self {
        Self {
            activities: HashSet::from([Activity::Cpu]),
            record_shapes: false,
            profile_memory: false,
            with_stack: false,
            with_flops: false,
            with_modules: false,
        }
    }
}

/// A profiler that is running. One at a time in a process.
#[derive(Debug)]
#[must_use = "profiling ends when the session is dropped"]
pub struct ProfilerSession {
    running: bool,
}

impl ProfilerSession {
    /// Starts recording on this thread and those it hands work to.
    ///
    /// # Errors
    /// If a profiler is running already.
    pub fn start(options: &ProfilerOptions) -> Result<Self> {
        let options = ffi::ProfilerOptions {
            cpu: options.activities.contains(&Activity::Cpu),
            cuda: options.activities.contains(&Activity::Cuda),
            shapes: options.record_shapes,
            memory: options.profile_memory,
            stack: options.with_stack,
            flops: options.with_flops,
            modules: options.with_modules,
        };
        // SAFETY: the options are valid for the call.
        unsafe { check("start profiler", ffi::acc_profiler_start(&options))? };
        Ok(Self { running: true })
    }

    /// Ends recording.
    ///
    /// # Errors
    /// If this is another thread than the one that started.
    pub fn stop(mut self) -> Result<Profile> {
        self.running = false;
        let mut out = ptr::null_mut();
        // SAFETY: on success `out` is an owned handle.
        unsafe { check("stop profiler", ffi::acc_profiler_stop(&mut out))? };
        NonNull::new(out)
            .map(|handle| Profile { handle })
            .ok_or(Error::Unavailable {
                operation: "stop profiler",
                needed: "a profile",
                remedy: "libtorch returned none",
            })
    }
}

impl Drop for ProfilerSession {
    fn drop(&mut self) {
        if self.running {
            drop(Self { running: true }.stop_quietly());
        }
    }
}

impl ProfilerSession {
    fn stop_quietly(mut self) -> Option<Profile> {
        self.running = false;
        let mut out = ptr::null_mut();
        // SAFETY: on success `out` is an owned handle.
        unsafe { check("stop profiler", ffi::acc_profiler_stop(&mut out)).ok()? };
        NonNull::new(out).map(|handle| Profile { handle })
    }
}

/// One operation, kernel or named range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileEvent {
    /// Its name, such as `aten::mm`.
    pub name: String,
    /// When it began, since the epoch of the profiler's clock.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
    /// The thread it ran on, by libtorch's number.
    pub thread: u64,
    /// Floating-point operations, where they were recorded.
    pub flops: u64,
    /// Bytes allocated (or freed, below zero) by a memory event.
    pub bytes: i64,
    /// The shapes of its inputs as text, where they were recorded.
    pub shapes: String,
    /// Whether it is a range that was named by a user.
    pub user_range: bool,
}

/// What a profiler recorded.
#[derive(Debug)]
pub struct Profile {
    handle: NonNull<ffi::Profile>,
}

// SAFETY: the handle is an owning pointer to finished data.
unsafe impl Send for Profile {}

impl Drop for Profile {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is not used after.
        unsafe { ffi::acc_profile_free(self.handle.as_ptr()) }
    }
}

impl Profile {
    /// All events, in the order of libtorch.
    ///
    /// # Errors
    /// None that is known.
    pub fn events(&self) -> Result<Vec<ProfileEvent>> {
        // SAFETY: the handle is alive.
        let count = unsafe { ffi::acc_profile_len(self.handle.as_ptr()) };
        (0..count).map(|index| self.event(index)).collect()
    }

    fn event(&self, index: usize) -> Result<ProfileEvent> {
        let mut event = ffi::ProfileEvent::default();
        let (mut name, mut shapes) = (Vec::new(), Vec::new());
        // SAFETY: the handle is alive; both sinks get the vectors they expect.
        unsafe {
            check(
                "profile event",
                ffi::acc_profile_event(
                    self.handle.as_ptr(),
                    index,
                    &mut event,
                    append,
                    target(&mut name),
                    append,
                    target(&mut shapes),
                ),
            )?;
        }
        Ok(ProfileEvent {
            name: lossy(name),
            start: Duration::from_nanos(event.start_ns),
            duration: Duration::from_nanos(event.duration_ns),
            thread: event.thread,
            flops: event.flops,
            bytes: event.bytes,
            shapes: lossy(shapes),
            user_range: event.user_scope,
        })
    }

    /// Writes a trace that `chrome://tracing` and Perfetto read. Works once for a profile.
    ///
    /// # Errors
    /// [`Error::Argument`] if no file was written, as libtorch itself only logs that.
    pub fn save_chrome_trace(&self, path: &Path) -> Result<()> {
        let text = path.to_string_lossy();
        // SAFETY: handle and text are valid for the call.
        unsafe {
            check(
                "save trace",
                ffi::acc_profile_save(self.handle.as_ptr(), text.as_ptr().cast(), text.len()),
            )?;
        }
        if path.exists() {
            return Ok(());
        }
        Err(Error::Argument {
            operation: "save trace",
            expected: "a path that can be written".to_owned(),
            found: text.into_owned(),
        })
    }
}

/// A named range in profiles, until it is dropped.
#[derive(Debug)]
#[must_use = "the range ends when it is dropped"]
pub struct ProfileRange {
    handle: Option<NonNull<ffi::Range>>,
}

impl ProfileRange {
    /// Starts a range; costs next to nothing while no profiler runs.
    ///
    /// # Errors
    /// None that is known.
    pub fn start(name: &str) -> Result<Self> {
        let mut out = ptr::null_mut();
        // SAFETY: the text is valid for the call; on success `out` is an owned handle.
        unsafe {
            check(
                "profile range",
                ffi::acc_range_start(name.as_ptr().cast(), name.len(), &mut out),
            )?;
        }
        Ok(Self {
            handle: NonNull::new(out),
        })
    }
}

impl Drop for ProfileRange {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            // SAFETY: the handle is ours and is not used after.
            unsafe { ffi::acc_range_end(handle.as_ptr()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind, Tensor};

    // One test: a process has one profiler.
    #[test]
    fn operations_ranges_and_shapes_are_recorded() -> Result<()> {
        let options = ProfilerOptions {
            record_shapes: true,
            with_flops: true,
            ..ProfilerOptions::default()
        };
        let session = ProfilerSession::start(&options)?;
        {
            let _range = ProfileRange::start("our phase")?;
            let x = Tensor::f_ones([2, 3], (Kind::Float, Device::Cpu))?;
            drop(x.f_matmul(&x.f_tr()?)?);
        }
        let profile = session.stop()?;
        let events = profile.events()?;
        let product = events
            .iter()
            .find(|e| e.name == "aten::mm")
            .expect("a product");
        assert_eq!(product.shapes, "[2, 3], [3, 2]");
        assert_eq!(product.flops, 24);
        let range = events
            .iter()
            .find(|e| e.name == "our phase")
            .expect("the range");
        assert!(range.user_range && range.duration >= product.duration);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        profile.save_chrome_trace(&path)?;
        let trace = std::fs::read_to_string(&path).unwrap();
        assert!(trace.contains("aten::mm") && trace.contains("our phase"));

        drop(ProfilerSession::start(&options)?);
        let again = ProfilerSession::start(&options)?;
        assert!(again.stop()?.events()?.iter().all(|e| e.name != "aten::mm"));
        Ok(())
    }
}
