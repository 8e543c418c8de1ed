use std::cell::Cell;
use std::num::NonZeroUsize;
use std::rc::Rc;

use crate::accumulation::{Counters, GradientAccumulationPlugin, Tallies};
use crate::data::LoaderProgress;

/// Where gradient accumulation stands: a shared handle.
///
/// One accelerator owns it and everything that it prepared holds a handle:
/// optimizers and schedules read here whether the current step is one at which
/// gradients are complete.
#[derive(Debug, Clone)]
pub struct GradientState {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sync_gradients: Cell<bool>,
    num_steps: Cell<NonZeroUsize>,
    sync_with_dataloader: Cell<bool>,
    sync_each_batch: Cell<bool>,
    adjust_scheduler: Cell<bool>,
    progress: LoaderProgress,
    counters: Counters,
    tallies: Tallies,
    open_scopes: Cell<usize>,
}

impl GradientState {
    /// Accumulation over `num_steps` batches; 1 completes gradients with every batch.
    #[must_use]
    pub fn new(num_steps: NonZeroUsize) -> Self {
        Self::with_plugin(GradientAccumulationPlugin::new(num_steps))
    }

    /// Accumulation with every switch.
    #[must_use]
    pub fn with_plugin(plugin: GradientAccumulationPlugin) -> Self {
        Self {
            shared: Rc::new(Shared {
                sync_gradients: Cell::new(true),
                num_steps: Cell::new(plugin.num_steps),
                sync_with_dataloader: Cell::new(plugin.sync_with_dataloader),
                sync_each_batch: Cell::new(plugin.sync_each_batch),
                adjust_scheduler: Cell::new(plugin.adjust_scheduler),
                progress: LoaderProgress::new(),
                counters: Counters::default(),
                tallies: Tallies::default(),
                open_scopes: Cell::new(0),
            }),
        }
    }

    /// Whether gradients are complete at this step: ranks exchange them, and
    /// optimizers and schedules step.
    #[must_use]
    pub fn sync_gradients(&self) -> bool {
        self.shared.sync_gradients.get()
    }

    /// Says whether gradients are complete at this step.
    pub fn set_sync_gradients(&self, sync: bool) {
        self.shared.sync_gradients.set(sync);
    }

    /// Over how many batches gradients are accumulated.
    #[must_use]
    pub fn num_steps(&self) -> NonZeroUsize {
        self.shared.num_steps.get()
    }

    /// Changes [`num_steps`](Self::num_steps).
    pub fn set_num_steps(&self, num_steps: NonZeroUsize) {
        self.shared.num_steps.set(num_steps);
    }

    /// Whether the last batch of a loader completes gradients in any case; on if not changed.
    #[must_use]
    pub fn sync_with_dataloader(&self) -> bool {
        self.shared.sync_with_dataloader.get()
    }

    /// Changes [`sync_with_dataloader`](Self::sync_with_dataloader).
    pub fn set_sync_with_dataloader(&self, sync: bool) {
        self.shared.sync_with_dataloader.set(sync);
    }

    /// Whether ranks exchange gradients at every batch, complete or not; off if
    /// not changed. Saves memory where sharded gradients would be kept whole.
    #[must_use]
    pub fn sync_each_batch(&self) -> bool {
        self.shared.sync_each_batch.get()
    }

    /// Changes [`sync_each_batch`](Self::sync_each_batch).
    pub fn set_sync_each_batch(&self, sync: bool) {
        self.shared.sync_each_batch.set(sync);
    }

    /// See [`GradientAccumulationPlugin::adjust_scheduler`].
    #[must_use]
    pub fn adjust_scheduler(&self) -> bool {
        self.shared.adjust_scheduler.get()
    }

    /// Starts accumulation anew: forgets how many batches each model has seen.
    ///
    /// Gradients that are there stay; drop them with the optimizer.
    pub fn restart(&self) {
        self.shared.counters.clear();
        self.shared.tallies.clear();
        self.shared.sync_gradients.set(true);
    }

    /// Whether some models have seen batches since their gradients were last complete.
    pub(crate) fn is_accumulating(&self) -> bool {
        let steps = u64::try_from(self.num_steps().get()).unwrap_or(u64::MAX);
        let counts = self.shared.counters.snapshot();
        counts.iter().any(|(_, count)| !count.is_multiple_of(steps))
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    pub(crate) fn tallies(&self) -> &Tallies {
        &self.shared.tallies
    }

    /// Counts a scope in; whether it is inside of another one.
    pub(crate) fn open_scope(&self) -> bool {
        self.shared
            .open_scopes
            .replace(self.shared.open_scopes.get() + 1)
            > 0
    }

    pub(crate) fn close_scope(&self) {
        let open = self.shared.open_scopes.get();
        self.shared.open_scopes.set(open.saturating_sub(1));
    }

    /// Where the loops over prepared loaders stand.
    #[must_use]
    pub fn progress(&self) -> &LoaderProgress {
        &self.shared.progress
    }

    /// Whether the active loop was handed its last batch.
    #[must_use]
    pub fn end_of_dataloader(&self) -> bool {
        self.shared.progress.end_of_dataloader()
    }

    /// See [`LoaderProgress::remainder`].
    #[must_use]
    pub fn remainder(&self) -> Option<usize> {
        self.shared.progress.remainder()
    }
}

impl Default for GradientState {
    fn default() -> Self {
        Self::new(NonZeroUsize::MIN)
    }
}
