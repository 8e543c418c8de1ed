//! Where the loops over a loader stand that rank 0 deals out.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::source::BatchSource;
use crate::Result;
use crate::data::loader_control::LoaderControl;
use crate::data::loader_state::DataLoaderState;

/// What is read on rank 0, and where the loops over it stand: the same on every rank.
pub(super) struct DispatchPosition<S> {
    pub(super) source: S,
    /// How many batches of the source make one step.
    pub(super) batches_per_step: usize,
    pub(super) epoch: Cell<u64>,
    /// The loop that began last, until it comes to its end.
    pub(super) running: RefCell<Option<RunningDispatch>>,
    /// What was loaded and no loop has taken up yet.
    pub(super) loaded: RefCell<Option<DataLoaderState>>,
}

pub(super) struct RunningDispatch {
    /// Where the epoch began.
    pub(super) begun: DataLoaderState,
    /// How many batches of the source were handed out.
    pub(super) batches: Rc<Cell<usize>>,
}

impl<S: BatchSource> DispatchPosition<S> {
    pub(super) fn set_epoch(&self, epoch: u64) {
        if epoch != self.epoch.replace(epoch) {
            self.running.replace(None);
            let loaded = self.loaded.take();
            self.loaded
                .replace(loaded.map(|state| state.in_other_epoch(epoch)));
        }
        self.source.set_epoch(epoch);
    }
}

impl<S: BatchSource> LoaderControl for DispatchPosition<S> {
    fn state_dict(&self) -> Result<DataLoaderState> {
        if let Some(loaded) = &*self.loaded.borrow() {
            return Ok(loaded.clone());
        }
        Ok(match &*self.running.borrow() {
            Some(running) => DataLoaderState {
                batches: running.batches.get(),
                ..running.begun.clone()
            },
            None => {
                let mut state = self.source.beginning()?;
                state.in_epoch = false;
                state.epoch = self.epoch.get();
                state.generators.global = None;
                state
            }
        })
    }

    fn load_state_dict(&self, state: &DataLoaderState) -> Result<()> {
        // The source looks whether it fits, and is told again when a loop begins.
        self.source.load_state(state)?;
        self.running.replace(None);
        self.epoch.set(state.epoch);
        self.loaded.replace(Some(state.clone()));
        Ok(())
    }
}
