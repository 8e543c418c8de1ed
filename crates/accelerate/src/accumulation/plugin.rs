use std::num::NonZeroUsize;

/// How gradients are accumulated, with every switch.
///
/// # Source
/// `accelerate.GradientAccumulationPlugin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GradientAccumulationPlugin {
    /// Over how many batches gradients are accumulated.
    pub num_steps: NonZeroUsize,
    /// Whether the schedule is meant for the smaller number of optimizer steps.
    ///
    /// Kept and shown; prepared schedules follow the optimizer either way.
    ///
    /// # Source
    /// The original reads its own default of `true` back as `false`, and with `true` only
    /// counts steps without changing a learning rate. Here it is what it was set to.
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
            adjust_scheduler: true,
            sync_with_dataloader: true,
            sync_each_batch: false,
        }
    }
}
