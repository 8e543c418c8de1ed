use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use tch::Tensor;

use crate::Result;
use crate::metrics::StepClock;
use crate::recording::{HandedOut, Recording};
use crate::tree::Tree;

/// Where the loops over prepared loaders stand: a shared handle.
///
/// Loops may be nested, as an evaluation inside of training. The innermost one
/// is the active one; when it ends, or is left early, the loop around it is
/// active again.
#[derive(Debug, Clone, Default)]
pub struct LoaderProgress {
    loops: Rc<RefCell<Vec<Loop>>>,
    next_id: Rc<Cell<u64>>,
    /// What is done with the batches, where somebody wants to know.
    recording: Rc<OnceCell<Recording>>,
    steps: StepClock,
}

#[derive(Debug, Clone, Copy)]
struct Loop {
    id: u64,
    end_of_dataloader: bool,
    remainder: Option<usize>,
}

impl LoaderProgress {
    /// A handle that no loop has registered with yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a loop over a prepared loader is running.
    #[must_use]
    pub fn in_dataloader(&self) -> bool {
        self.active().is_some()
    }

    /// Whether the active loop was handed its last batch; false outside of loops.
    #[must_use]
    pub fn end_of_dataloader(&self) -> bool {
        self.active().is_some_and(|active| active.end_of_dataloader)
    }

    /// How many samples of the active loop's last global batch are no repetition.
    ///
    /// 0 means that the last batch is full and `None` that nothing is known or
    /// nothing is repeated; in both cases nothing is to be trimmed.
    #[must_use]
    pub fn remainder(&self) -> Option<usize> {
        self.active().and_then(|active| active.remainder)
    }

    /// Registers a loop, which is the active one until the scope is dropped.
    #[must_use]
    pub fn begin(&self, remainder: Option<usize>) -> LoaderScope {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        self.loops.borrow_mut().push(Loop {
            id,
            end_of_dataloader: false,
            remainder,
        });
        LoaderScope {
            progress: self.clone(),
            id,
        }
    }

    /// Records from now on what loops hand out.
    pub(crate) fn record(&self, recording: Recording) {
        // The first one stays.
        let _ = self.recording.set(recording);
    }

    /// What takes the times of steps.
    pub(crate) fn steps(&self) -> &StepClock {
        &self.steps
    }

    pub(crate) fn recording(&self) -> Option<&Recording> {
        self.recording.get()
    }

    /// Records a loss, a mean or a sum over samples, of the batches that are being worked on.
    pub(crate) fn record_loss(&self, loss: &Tensor, is_sum: bool) -> Result<()> {
        let Some(recording) = self.recording() else {
            return Ok(());
        };
        let loops = self.loops.borrow();
        recording.loss(loss, is_sum, |id| loops.iter().any(|open| open.id == id))
    }

    fn active(&self) -> Option<Loop> {
        self.loops.borrow().last().copied()
    }
}

/// One running loop; dropping it ends the loop.
#[derive(Debug)]
pub struct LoaderScope {
    progress: LoaderProgress,
    id: u64,
}

impl LoaderScope {
    /// Says that the batch handed out next is the last one.
    pub fn reach_end(&self) {
        let mut loops = self.progress.loops.borrow_mut();
        if let Some(own) = loops.iter_mut().find(|entry| entry.id == self.id) {
            own.end_of_dataloader = true;
        }
    }
}

impl LoaderScope {
    /// Counts a batch that is handed out.
    pub(super) fn count(&self, batch: &dyn Tree) {
        self.progress.steps.batch(batch);
    }

    /// Whether batches are recorded.
    pub(super) fn is_recorded(&self) -> bool {
        self.progress.recording().is_some()
    }

    /// Records a batch that is handed out, where somebody wants to know.
    pub(super) fn record(
        &self,
        batch: &dyn Tree,
        epoch: u64,
        indices: Option<Vec<usize>>,
    ) -> Result<()> {
        let Some(recording) = self.progress.recording() else {
            return Ok(());
        };
        let loops = self.progress.loops.borrow();
        let own = loops.iter().find(|entry| entry.id == self.id);
        let at_end = own.filter(|own| own.end_of_dataloader);
        let out = HandedOut {
            of_loop: self.id,
            epoch,
            indices,
            remainder: at_end.and_then(|own| own.remainder),
        };
        recording.batch(batch, out)
    }

    /// Says how many samples of the last global batch are no repetition, see
    /// [`LoaderProgress::remainder`], for loops that learn it at their end.
    pub fn set_remainder(&self, remainder: Option<usize>) {
        let mut loops = self.progress.loops.borrow_mut();
        if let Some(own) = loops.iter_mut().find(|entry| entry.id == self.id) {
            own.remainder = remainder;
        }
    }
}

impl Drop for LoaderScope {
    fn drop(&mut self) {
        self.progress
            .loops
            .borrow_mut()
            .retain(|entry| entry.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_loop_is_active() {
        let progress = LoaderProgress::new();
        assert!(!progress.in_dataloader());
        let outer = progress.begin(Some(3));
        outer.reach_end();
        assert!(progress.end_of_dataloader());
        let inner = progress.begin(None);
        assert_eq!(
            (progress.end_of_dataloader(), progress.remainder()),
            (false, None)
        );
        drop(inner);
        assert_eq!(
            (progress.end_of_dataloader(), progress.remainder()),
            (true, Some(3))
        );
        drop(outer);
        assert_eq!(
            (progress.in_dataloader(), progress.remainder()),
            (false, None)
        );
    }

    #[test]
    fn loops_may_end_in_any_order() {
        let progress = LoaderProgress::new();
        let first = progress.begin(Some(1));
        let second = progress.begin(Some(2));
        drop(first);
        assert_eq!(progress.remainder(), Some(2));
        second.reach_end();
        assert!(progress.end_of_dataloader());
    }
}
