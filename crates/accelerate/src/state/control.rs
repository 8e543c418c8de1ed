//! Who does what, and who waits for whom.

use tch::Device;

use super::PartialState;
use crate::Result;

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
    /// If a rank does not come within the timeout, or is gone.
    pub fn wait_for_everyone(&self) -> Result<()> {
        let Some(group) = self.process_group() else {
            return Ok(());
        };
        let device = match self.device() {
            Device::Cuda(index) => Some(index),
            _ => None,
        };
        Ok(group.barrier_async(device)?.wait()?)
    }

    /// Lets the main process go first: the others wait here until its turn is over.
    ///
    /// For work that the others then find done, such as filling a cache. The turn is
    /// over when what this returns is dropped, also when that is because of an error.
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// As [`wait_for_everyone`](Self::wait_for_everyone).
    pub fn main_process_first(&self) -> Result<ProcessTurn> {
        ProcessTurn::begin(self, self.is_main_process())
    }

    /// As [`main_process_first`](Self::main_process_first), for the main process of each machine.
    ///
    /// # Errors
    /// As [`wait_for_everyone`](Self::wait_for_everyone).
    pub fn local_main_process_first(&self) -> Result<ProcessTurn> {
        ProcessTurn::begin(self, self.is_local_main_process())
    }

    /// Runs `action` on rank 0 of the job only.
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

/// A turn that some ranks take before others.
#[derive(Debug)]
#[must_use = "the turn is over when this is dropped"]
pub struct ProcessTurn {
    /// Whom the others wait for, while it is this process.
    first: Option<PartialState>,
}

impl ProcessTurn {
    fn begin(state: &PartialState, first: bool) -> Result<Self> {
        if first {
            return Ok(Self {
                first: Some(state.clone()),
            });
        }
        state.wait_for_everyone()?;
        Ok(Self { first: None })
    }

    /// Ends the turn and says whether the others were reached.
    ///
    /// # Errors
    /// As [`PartialState::wait_for_everyone`].
    pub fn end(mut self) -> Result<()> {
        self.first
            .take()
            .map_or(Ok(()), |state| state.wait_for_everyone())
    }
}

impl Drop for ProcessTurn {
    fn drop(&mut self) {
        let Some(state) = self.first.take() else {
            return;
        };
        if let Err(error) = state.wait_for_everyone() {
            tracing::error!(%error, "the other processes could not be told that this one is done");
        }
    }
}
