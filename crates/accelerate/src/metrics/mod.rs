//! Where the time of a step goes, on every rank, without a profiler.
//!
//! What passes through the library anyway is timed: waiting for a batch, computing (from a batch to the
//! end of its backward pass, clipping, and the optimizer), being blocked by other ranks, and the
//! rest. A step ends when a prepared optimizer has stepped; with several optimizers, when the first
//! of them has. [`Accelerator::step_metrics`](crate::Accelerator::step_metrics) tells of the last step.
//! While the tracker [`local`](crate::tracking::Local) writes a run, each rank adds its steps to
//! it, at most ten lines a second, each the mean of the steps since the one before. In jobs of several
//! ranks, threads exchange averages over the store now and then, and rank 0 names stragglers.
//!
//! All times are those of the thread that trains. On a GPU kernels run behind its back: there
//! the time of a step is right, but what the thread waits for may be counted where it waits, not where
//! the kernel came from.

mod batch;
mod board;
mod clock;
mod kwargs;
mod measured;
mod memory;
mod observer;
mod recorder;

pub use accelerate_tracking::run::{StepMetrics, TimeSplit};
pub(crate) use clock::StepClock;
pub use kwargs::StepMetricsKwargs;
pub use measured::StepReport;
pub(crate) use recorder::{Recorder, RunPlace};
