//! Process control: who does what, who waits for whom, and the end.

use std::fmt;

use super::Accelerator;
use crate::Result;
use crate::state::{Part, Split};

impl Accelerator {
    /// Waits until every rank has come here.
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// As [`PartialState::wait_for_everyone`](crate::PartialState::wait_for_everyone).
    #[track_caller]
    pub fn wait_for_everyone(&self) -> Result<()> {
        self.state().wait_for_everyone()
    }

    /// Prints a line on rank 0 of each machine.
    pub fn print(&self, message: impl fmt::Display) {
        self.state().print(message);
    }

    /// Runs `action` on rank 0 of the job only; `None` elsewhere.
    pub fn on_main_process<R>(&self, action: impl FnOnce() -> R) -> Option<R> {
        self.state().on_main_process(action)
    }

    /// Runs `action` on rank 0 of each machine only; `None` elsewhere.
    pub fn on_local_main_process<R>(&self, action: impl FnOnce() -> R) -> Option<R> {
        self.state().on_local_main_process(action)
    }

    /// Runs `action` on the last rank only; `None` elsewhere.
    pub fn on_last_process<R>(&self, action: impl FnOnce() -> R) -> Option<R> {
        self.state().on_last_process(action)
    }

    /// Runs `action` on one rank only. A process by itself always runs it.
    pub fn on_process<R>(&self, process_index: usize, action: impl FnOnce() -> R) -> Option<R> {
        self.state().on_process(process_index, action)
    }

    /// Runs `action` on one rank of each machine only. A process by itself always runs it.
    pub fn on_local_process<R>(
        &self,
        local_process_index: usize,
        action: impl FnOnce() -> R,
    ) -> Option<R> {
        self.state().on_local_process(local_process_index, action)
    }

    /// Runs `action` everywhere, on the main process first: the others then find its work done.
    ///
    /// ```
    /// # let accelerator = accelerate::Accelerator::new()?;
    /// let data = accelerator.main_process_first(|| Ok(vec![1, 2, 3]))?;
    /// # assert_eq!(data.len(), 3);
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// That of `action`; [`Error::TurnFailed`](crate::Error::TurnFailed) on every other rank
    /// if the main process failed.
    #[track_caller]
    pub fn main_process_first<R>(&self, action: impl FnOnce() -> Result<R>) -> Result<R> {
        self.state().main_process_first()?.run(action)
    }

    /// As [`main_process_first`](Self::main_process_first), with the main process of each machine.
    ///
    /// # Errors
    /// As [`main_process_first`](Self::main_process_first).
    #[track_caller]
    pub fn local_main_process_first<R>(&self, action: impl FnOnce() -> Result<R>) -> Result<R> {
        self.state().local_main_process_first()?.run(action)
    }

    /// This rank's part of something that all ranks have, with the number of real items.
    ///
    /// # Errors
    /// As [`PartialState::split_between_processes`](crate::PartialState::split_between_processes).
    pub fn split_between_processes<S: Split>(
        &self,
        inputs: S,
        apply_padding: bool,
    ) -> Result<Part<S::Part>> {
        self.state().split_between_processes(inputs, apply_padding)
    }

    /// Ends the job in order: a save in the background is waited for, ranks take leave of each
    /// other, within ten seconds, and trackers close their runs.
    ///
    /// A rank that is missing is named in a warning; that changes neither the result nor
    /// the exit code. Nothing may be sent between ranks after.
    ///
    /// # Collective
    /// Every rank calls this, as its last operation.
    ///
    /// # Errors
    /// As [`PartialState::destroy_process_group`](crate::PartialState::destroy_process_group), and
    /// [`Error::BackgroundSave`](crate::Error::BackgroundSave) where a save failed that nobody
    /// was told of.
    ///
    /// # Source
    /// `Accelerator.end_training`.
    pub fn end_training(&self) -> Result<()> {
        // Before the job ends: its ranks are still compared.
        self.gradient_state().progress().steps().finish();
        let saved = self.shared.saves.report();
        let left = self.state().destroy_process_group().map(drop);
        // Last, since other ranks would wait while a slow service gets the rest.
        self.shared.trackers.finish();
        saved.and(left)
    }
}
