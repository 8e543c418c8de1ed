//! Memory-aware accumulation: where the batch size has to be made smaller, gradients of several
//! batches are accumulated, so that the optimizer still steps on as many samples as was asked for.

pub(crate) mod accelerated;
pub(crate) mod plain;

use std::num::NonZeroUsize;

/// How many batches make up for one of the size that was asked for.
fn steps_for(wanted: NonZeroUsize, batch_size: usize) -> NonZeroUsize {
    let steps = wanted.get().div_ceil(batch_size.max(1));
    NonZeroUsize::new(steps).unwrap_or(NonZeroUsize::MIN)
}
