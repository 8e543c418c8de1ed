//! Communication under way.

use std::ptr::{self, NonNull};
use std::time::Duration;

use tch::Tensor;

use crate::blocked::Blocked;
use crate::future::Future;
use crate::profiler::ProfileRange;
use crate::status::{check, outcome};
use crate::store::millis;
use crate::{Error, Place, Result, ffi};

/// What has to happen when the transfer itself is done.
type Finish = Box<dyn FnOnce() -> Result<()> + Send>;

/// A collective or a transfer that has been started.
///
/// The tensors it reads and writes are kept alive, and must not be touched, until
/// [`wait`](Self::wait) returns. On CUDA, waiting orders the current stream after the
/// transfer and does not block the CPU. Dropping it does not stop the transfer.
#[must_use = "the result is not there until the work was waited for"]
pub struct Work {
    parts: Vec<Part>,
    finish: Option<Finish>,
    operation: &'static str,
    place: Place,
    /// Held until the work is done.
    _tensors: Vec<Tensor>,
}

struct Part(NonNull<ffi::Work>);

// SAFETY: a reference-counted pointer with an atomic count; waiting and asking are
// guarded by the work's own mutex.
unsafe impl Send for Part {}

impl Drop for Part {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is not used after.
        unsafe { ffi::acc_work_free(self.0.as_ptr()) }
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work")
            .field("operation", &self.operation)
            .field("place", &self.place)
            .field("parts", &self.parts.len())
            .finish_non_exhaustive()
    }
}

impl Work {
    /// One transfer that the shim started.
    ///
    /// # Safety
    /// `raw` is null or an owned handle.
    pub(super) unsafe fn new(
        operation: &'static str,
        place: Place,
        raw: *mut ffi::Work,
        tensors: Vec<Tensor>,
    ) -> Self {
        let parts = NonNull::new(raw).map(Part).into_iter().collect();
        Self {
            parts,
            finish: None,
            operation,
            place,
            _tensors: tensors,
        }
    }

    /// Several transfers that belong together.
    pub(super) fn joined(operation: &'static str, place: Place, works: Vec<Self>) -> Self {
        let mut all = Self {
            parts: Vec::new(),
            finish: None,
            operation,
            place,
            _tensors: Vec::new(),
        };
        for mut work in works {
            all.parts.append(&mut work.parts);
            all._tensors.append(&mut work._tensors);
        }
        all
    }

    /// Runs `finish` on the waiting thread once the transfer is done.
    pub(super) fn then(mut self, finish: impl FnOnce() -> Result<()> + Send + 'static) -> Self {
        self.finish = Some(Box::new(finish));
        self
    }

    /// Waits until the result is there.
    ///
    /// # Errors
    /// [`Error::Timeout`] if the group's timeout is over, [`Error::ConnectionLost`] if a
    /// peer ended, both with operation, rank and group.
    pub fn wait(self) -> Result<()> {
        self.wait_ms(-1)
    }

    /// Waits until the result is there, or the time is over.
    ///
    /// After a timeout the group cannot be used any more, as the transfer may be half done.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_timeout(self, timeout: Duration) -> Result<()> {
        self.wait_ms(millis(timeout))
    }

    fn wait_ms(mut self, timeout: i64) -> Result<()> {
        let _range = ProfileRange::while_recording(|| {
            format!("wait: {}, group {}", self.operation, self.place.group)
        })?;
        let blocked = Blocked::begin();
        for part in &self.parts {
            // SAFETY: the handle is alive.
            let waited = unsafe { outcome(ffi::acc_work_wait(part.0.as_ptr(), timeout)) };
            waited.map_err(|e| e.into_place_error(self.operation, &self.place))?;
        }
        drop(blocked);
        self.finish.take().map_or(Ok(()), |finish| finish())
    }

    /// Whether waiting would return at once.
    ///
    /// # Errors
    /// None that is known.
    pub fn is_completed(&self) -> Result<bool> {
        for part in &self.parts {
            let mut done = false;
            // SAFETY: the handle is alive.
            unsafe {
                check(
                    "work state",
                    ffi::acc_work_is_completed(part.0.as_ptr(), &mut done),
                )?
            };
            if !done {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The number of this collective within its group, for comparing ranks.
    ///
    /// # Errors
    /// If the backend does not count.
    pub fn sequence(&self) -> Result<u64> {
        let part = self.single("sequence number")?;
        let mut number = 0;
        // SAFETY: the handle is alive.
        unsafe {
            check(
                "sequence number",
                ffi::acc_work_sequence(part.0.as_ptr(), &mut number),
            )?;
        }
        Ok(number)
    }

    /// A future of the tensor that the collective writes.
    ///
    /// # Errors
    /// If the backend has no futures for this operation, or it is made of several.
    pub fn future(self) -> Result<Future> {
        let part = self.single("future of work")?;
        if self.finish.is_some() {
            return Err(Error::Unavailable {
                operation: "future of work",
                needed: "an operation that the backend does by itself",
                remedy: "use a sum and divide it in the future's closure",
            });
        }
        let mut out = ptr::null_mut();
        // SAFETY: the handle is alive; on success `out` is an owned handle.
        unsafe {
            check(
                "future of work",
                ffi::acc_work_future(part.0.as_ptr(), &mut out),
            )?;
            Future::from_raw(out)
        }
    }

    fn single(&self, operation: &'static str) -> Result<&Part> {
        match self.parts.as_slice() {
            [part] => Ok(part),
            parts => Err(Error::Argument {
                operation,
                expected: "one transfer".to_owned(),
                found: parts.len().to_string(),
            }),
        }
    }
}
