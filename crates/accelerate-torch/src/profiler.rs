//! Where the time goes: libtorch's profiler.

use std::collections::HashSet;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
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

impl ProfilerOptions {
    fn raw(&self) -> ffi::ProfilerOptions {
        ffi::ProfilerOptions {
            cpu: self.activities.contains(&Activity::Cpu),
            cuda: self.activities.contains(&Activity::Cuda),
            shapes: self.record_shapes,
            memory: self.profile_memory,
            stack: self.with_stack,
            flops: self.with_flops,
            modules: self.with_modules,
        }
    }
}

/// How many profilers record in this process: what names ranges asks, before it makes a name.
static RECORDING: AtomicUsize = AtomicUsize::new(0);

/// How many recordings have ended: the end of a range that outlives its own would be written into what
/// libtorch has freed.
static ENDED: AtomicUsize = AtomicUsize::new(0);

/// A profiler that has been warmed up and does not record yet.
#[derive(Debug)]
#[must_use = "nothing is recorded before it is started"]
pub struct PreparedProfiler(ProfilerOptions);

impl PreparedProfiler {
    /// Warms up what records activities, which takes long on a GPU.
    ///
    /// # Errors
    /// If a profiler is running already.
    pub fn new(options: ProfilerOptions) -> Result<Self> {
        let raw = options.raw();
        // SAFETY: the options are valid for the call.
        unsafe { check("prepare profiler", ffi::acc_profiler_prepare(&raw))? };
        Ok(Self(options))
    }

    /// Starts recording on this thread and those it hands work to.
    ///
    /// # Errors
    /// If a profiler is running already.
    pub fn start(self) -> Result<ProfilerSession> {
        let raw = self.0.raw();
        // SAFETY: the options are valid for the call.
        unsafe { check("start profiler", ffi::acc_profiler_start(&raw))? };
        RECORDING.fetch_add(1, Ordering::Relaxed);
        Ok(ProfilerSession { running: true })
    }
}

/// A profiler that is running. One at a time in a process.
#[derive(Debug)]
#[must_use = "profiling ends when the session is dropped"]
pub struct ProfilerSession {
    running: bool,
}

impl ProfilerSession {
    /// Prepares a profiler and starts it.
    ///
    /// # Errors
    /// If a profiler is running already.
    pub fn start(options: &ProfilerOptions) -> Result<Self> {
        PreparedProfiler::new(options.clone())?.start()
    }

    /// Ends recording.
    ///
    /// # Errors
    /// If this is another thread than the one that started.
    pub fn stop(mut self) -> Result<Profile> {
        self.end()
    }

    fn end(&mut self) -> Result<Profile> {
        self.running = false;
        RECORDING.fetch_sub(1, Ordering::Relaxed);
        ENDED.fetch_add(1, Ordering::Relaxed);
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
            drop(self.end());
        }
    }
}

/// One operation, kernel or named range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileEvent {
    /// Its name, such as `aten::mm`.
    pub name: String,
    /// When it began, since the beginning of the profiler's clock.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
    /// The thread it began on, by libtorch's number.
    pub thread: u64,
    /// Where it ran; for a memory event, whose memory it was.
    pub place: EventPlace,
    /// What the kernels that it started are linked to.
    pub correlation: u64,
    /// The operation that started it, if it is a kernel or a call of the device's driver; 0 for none.
    pub linked_correlation: u64,
    /// Floating-point operations, where they were recorded.
    pub flops: u64,
    /// Bytes allocated (or freed, below zero) by a memory event.
    pub bytes: i64,
    /// The shapes of its inputs as text, where they were recorded.
    pub shapes: String,
    /// Whether it is a range that was named by a user.
    pub user_range: bool,
    /// Whether it ended on another thread than it began on.
    pub is_async: bool,
    /// Whether it is one that PyTorch shows nobody.
    pub is_hidden: bool,
}

/// Where an event of a profile took place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventPlace {
    /// On the CPU.
    Cpu,
    /// On a CUDA device, by its index.
    Cuda(i32),
    /// On another device.
    Other,
}

impl EventPlace {
    /// By libtorch's numbers of device types.
    fn of(device_type: i32, index: i32) -> Self {
        match device_type {
            0 => Self::Cpu,
            1 => Self::Cuda(index),
            _ => Self::Other,
        }
    }
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
            place: EventPlace::of(event.device_type, event.device_index),
            correlation: event.correlation,
            linked_correlation: event.linked_correlation,
            flops: event.flops,
            bytes: event.bytes,
            shapes: lossy(shapes),
            user_range: event.user_scope,
            is_async: event.is_async,
            is_hidden: event.hidden,
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
    /// How many recordings had ended when it began.
    ended: usize,
}

impl ProfileRange {
    /// Starts a range while a profiler runs; otherwise not even its name is made.
    ///
    /// # Errors
    /// None that is known.
    pub fn while_recording(name: impl FnOnce() -> String) -> Result<Option<Self>> {
        if RECORDING.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        Self::start(&name()).map(Some)
    }

    /// Starts a range; costs next to nothing while no profiler runs.
    ///
    /// # Errors
    /// None that is known.
    pub fn start(name: &str) -> Result<Self> {
        let ended = ENDED.load(Ordering::Relaxed);
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
            ended,
        })
    }
}

impl Drop for ProfileRange {
    fn drop(&mut self) {
        // One whose recording has ended is leaked.
        if ENDED.load(Ordering::Relaxed) == self.ended
            && let Some(handle) = self.handle.take()
        {
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
        assert!(ProfileRange::while_recording(|| unreachable!())?.is_none());
        let session = ProfilerSession::start(&options)?;
        {
            assert!(ProfileRange::while_recording(|| "asked".to_owned())?.is_some());
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
        assert_eq!(product.place, EventPlace::Cpu);
        assert!(!product.user_range && !product.is_async);
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
