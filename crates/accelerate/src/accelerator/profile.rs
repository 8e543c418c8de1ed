use super::Accelerator;
use crate::Result;
use crate::profile::{ProfileKwargs, Profiler};

impl Accelerator {
    /// Starts a profiler as [`profile_kwargs`](super::AcceleratorBuilder::profile_kwargs) said.
    ///
    /// # Errors
    /// If a profiler is running in this process.
    ///
    /// # Source
    /// `Accelerator.profile`, whose scope ends where [`Profiler::finish`] is called here.
    pub fn profile(&self) -> Result<Profiler> {
        self.profile_with(self.shared.profile.clone())
    }

    /// Starts a profiler with settings of its own.
    ///
    /// # Errors
    /// As [`profile`](Self::profile).
    pub fn profile_with(&self, kwargs: ProfileKwargs) -> Result<Profiler> {
        Profiler::start(kwargs, self.state().clone())
    }
}
