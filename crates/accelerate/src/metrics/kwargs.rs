use std::time::Duration;

/// What becomes of the times of steps.
///
/// # Source
/// None.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepMetricsKwargs {
    /// Whether [`Accelerator::log`](crate::Accelerator::log) adds the averages of this rank, under
    /// names such as `perf/samples_per_second`; off if not changed.
    pub in_log: bool,
    /// How often ranks exchange averages, by which stragglers are found; each 10 seconds if not changed.
    /// Less than 100 ms counts as 100 ms.
    pub exchange_every: Duration,
}

impl Default for StepMetricsKwargs {
    fn default() -> Self {
        Self {
            in_log: false,
            exchange_every: Duration::from_secs(10),
        }
    }
}
