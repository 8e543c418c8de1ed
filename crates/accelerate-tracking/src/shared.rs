//! A tracker that several places hold.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::media::{Image, Table};
use crate::tracker::{RunContext, Tracker};
use crate::value::Values;

/// A handle of a tracker; or of none, on ranks that do not track: there every call does nothing.
#[derive(Clone, Default)]
pub struct TrackerHandle {
    tracker: Option<Arc<Mutex<Box<dyn Tracker>>>>,
}

impl TrackerHandle {
    /// A handle of this tracker.
    #[must_use]
    pub fn new(tracker: impl Tracker + 'static) -> Self {
        Self::from_box(Box::new(tracker))
    }

    /// A handle of this tracker.
    #[must_use]
    pub fn from_box(tracker: Box<dyn Tracker>) -> Self {
        Self {
            tracker: Some(Arc::new(Mutex::new(tracker))),
        }
    }

    /// A handle of no tracker.
    #[must_use]
    pub fn blank() -> Self {
        Self::default()
    }

    /// Whether there is no tracker behind it.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.tracker.is_none()
    }

    /// Whether both are handles of one tracker.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.tracker, &other.tracker) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// The name of the tracker; empty for none.
    #[must_use]
    pub fn name(&self) -> String {
        self.with(|tracker| tracker.name().to_owned())
            .unwrap_or_default()
    }

    /// Calls `use_it` with the tracker; nothing for a blank one.
    pub fn with<R>(&self, use_it: impl FnOnce(&mut dyn Tracker) -> R) -> Option<R> {
        let tracker = self.tracker.as_ref()?;
        Some(use_it(lock(tracker).as_mut()))
    }

    /// Calls `use_it` with the tracker as what it is; nothing for a blank one, or one of another type.
    ///
    /// ```
    /// use accelerate_tracking::{Local, TrackerHandle};
    ///
    /// let handle = TrackerHandle::new(Local::new());
    /// let folder = handle.with_inner(|local: &mut Local| local.folder().map(ToOwned::to_owned));
    /// assert_eq!(folder, Some(None));
    /// ```
    pub fn with_inner<T: 'static, R>(&self, use_it: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.with(|tracker| tracker.as_any().downcast_mut::<T>().map(use_it))?
    }

    /// As [`Tracker::start`].
    ///
    /// # Errors
    /// Those of the tracker.
    pub fn start(&self, run: &RunContext) -> Result<()> {
        self.call(|tracker| tracker.start(run))
    }

    /// As [`Tracker::store_init_configuration`].
    ///
    /// # Errors
    /// Those of the tracker.
    pub fn store_init_configuration(&self, values: &Values) -> Result<()> {
        self.call(|tracker| tracker.store_init_configuration(values))
    }

    /// As [`Tracker::log`].
    ///
    /// # Errors
    /// Those of the tracker.
    pub fn log(&self, values: &Values, step: Option<i64>, options: &Values) -> Result<()> {
        self.call(|tracker| tracker.log(values, step, options))
    }

    /// As [`Tracker::log_images`].
    ///
    /// # Errors
    /// Those of the tracker.
    pub fn log_images(
        &self,
        images: &[(String, Vec<Image>)],
        step: Option<i64>,
        options: &Values,
    ) -> Result<()> {
        self.call(|tracker| tracker.log_images(images, step, options))
    }

    /// As [`Tracker::log_table`].
    ///
    /// # Errors
    /// Those of the tracker.
    pub fn log_table(
        &self,
        name: &str,
        table: &Table,
        step: Option<i64>,
        options: &Values,
    ) -> Result<()> {
        self.call(|tracker| tracker.log_table(name, table, step, options))
    }

    /// As [`Tracker::finish`].
    ///
    /// # Errors
    /// Those of the tracker.
    pub fn finish(&self) -> Result<()> {
        self.call(|tracker| tracker.finish())
    }

    fn call(&self, call: impl FnOnce(&mut dyn Tracker) -> Result<()>) -> Result<()> {
        self.with(call).unwrap_or(Ok(()))
    }
}

impl fmt::Debug for TrackerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TrackerHandle").field(&self.name()).finish()
    }
}

/// A tracker that panicked in one call is still there for the next.
fn lock(tracker: &Mutex<Box<dyn Tracker>>) -> MutexGuard<'_, Box<dyn Tracker>> {
    tracker.lock().unwrap_or_else(PoisonError::into_inner)
}
