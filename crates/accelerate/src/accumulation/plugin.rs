use std::num::NonZeroUsize;

/// How gradients are accumulated, with every switch.
///
/// # Source
/// `accelerate.GradientAccumulationPlugin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GradientAccumulationPlugin {
    /// Over how many batches gradients are accumulated.
    pub num_steps: NonZeroUsize,
    /// Whether a schedule's length counts batches, and not updates of the optimizer.
    ///
    /// A prepared schedule then makes a step for every batch whose gradients went into an
    /// update, all of them at the update; otherwise one. Off if not changed: count the length
    /// of a schedule in updates.
    ///
    /// # Source
    /// `adjust_scheduler`, as documented there. Differs: the default. The original documents
    /// `true`, drops it as equal to the default and reads it back as `false`, so its schedules
    /// are never adjusted; here the default is what happens there.
    pub adjust_scheduler: bool,
    /// Whether the last batch of a loader completes gradients, whatever the count.
    pub sync_with_dataloader: bool,
    /// Whether ranks exchange gradients with every batch. Optimizers and schedules still
    /// wait for the last one: this only trades communication for memory.
    pub sync_each_batch: bool,
}

impl GradientAccumulationPlugin {
    /// The usual switches with this number of batches.
    #[must_use]
    pub fn new(num_steps: NonZeroUsize) -> Self {
        Self {
            num_steps,
            ..Self::default()
        }
    }
}

impl Default for GradientAccumulationPlugin {
    fn default() -> Self {
        Self {
            num_steps: NonZeroUsize::MIN,
            adjust_scheduler: false,
            sync_with_dataloader: true,
            sync_each_batch: false,
        }
    }
}
