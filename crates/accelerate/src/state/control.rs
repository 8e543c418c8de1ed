//! Who does what, and who waits for whom.

use tch::Device;

use super::{PartialState, ProcessTurn};
use crate::Result;
use crate::collectives::{Operation, Watch};

impl PartialState {
    /// Whether this is rank 0 of the job.
    #[must_use]
    pub fn is_main_process(&self) -> bool {
        self.process_index() == 0
    }

    /// Whether this is rank 0 of its machine.
    #[must_use]
    pub fn is_local_main_process(&self) -> bool {
        self.local_process_index() == 0
    }

    /// Whether this is the last rank of the job.
    #[must_use]
    pub fn is_last_process(&self) -> bool {
        self.process_index() + 1 == self.num_processes()
    }

    /// Waits until every rank has come here; at once for a process by itself.
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// [`Error::CollectiveIncomplete`](crate::Error::CollectiveIncomplete) names ranks that are
    /// gone, or do not come within the timeout.
    #[track_caller]
    pub fn wait_for_everyone(&self) -> Result<()> {
        let Some(watch) = Watch::begin(self, &Operation::new("wait_for_everyone"))? else {
            return Ok(());
        };
        let device = match self.device() {
            Device::Cuda(index) => Some(index),
            _ => None,
        };
        watch.run(|group| Ok(group.barrier_async(device)?.wait()?))
    }

    /// Lets the main process go first: the others wait here until its turn is over.
    ///
    /// For work that the others then find done, such as filling a cache: see
    /// [`ProcessTurn`].
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// [`Error::TurnFailed`](crate::Error::TurnFailed) if the main process did not do its
    /// work; as [`wait_for_everyone`](Self::wait_for_everyone).
    ///
    /// # Source
    /// `PartialState.main_process_first`. Differs: when the main process fails, the others
    /// get an error instead of waiting for ever.
    #[track_caller]
    pub fn main_process_first(&self) -> Result<ProcessTurn> {
        ProcessTurn::begin(self, self.is_main_process())
    }

    /// As [`main_process_first`](Self::main_process_first), for the main process of each machine.
    ///
    /// # Errors
    /// As [`main_process_first`](Self::main_process_first).
    #[track_caller]
    pub fn local_main_process_first(&self) -> Result<ProcessTurn> {
        ProcessTurn::begin(self, self.is_local_main_process())
    }

    /// Runs `action` on rank 0 of the job only; `None` elsewhere.
    ///
    /// What only one rank runs must not be an operation that all ranks have to call.
    pub fn on_main_process<R>(&self, action: impl FnOnce() -> R) -> Option<R> {
        self.is_main_process().then(action)
    }

    /// Runs `action` on rank 0 of each machine only.
    pub fn on_local_main_process<R>(&self, action: impl FnOnce() -> R) -> Option<R> {
        self.is_local_main_process().then(action)
    }

    /// Runs `action` on the last rank only.
    pub fn on_last_process<R>(&self, action: impl FnOnce() -> R) -> Option<R> {
        self.is_last_process().then(action)
    }

    /// Runs `action` on one rank only. A process by itself always runs it.
    pub fn on_process<R>(&self, process_index: usize, action: impl FnOnce() -> R) -> Option<R> {
        (!self.use_distributed() || self.process_index() == process_index).then(action)
    }

    /// Runs `action` on one rank of each machine only. A process by itself always runs it.
    pub fn on_local_process<R>(
        &self,
        local_process_index: usize,
        action: impl FnOnce() -> R,
    ) -> Option<R> {
        (!self.use_distributed() || self.local_process_index() == local_process_index).then(action)
    }

    /// Prints a line on rank 0 of each machine.
    #[expect(clippy::print_stdout, reason = "printing is what it is for")]
    pub fn print(&self, message: impl std::fmt::Display) {
        if self.is_local_main_process() {
            println!("{message}");
        }
    }
}
