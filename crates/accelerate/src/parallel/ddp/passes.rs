//! Forward and backward passes as calls that all ranks make: counted, and explained where
//! they fail.

use accelerate_torch::autograd::{self, BackwardOptions};
use tch::Tensor;

use super::{Call, DataParallel, Site, unused};
use crate::collectives::explain;
use crate::state::PartialState;
use crate::{Error, Result};

impl DataParallel {
    /// Counts a pass in which this model talks to other ranks.
    pub(super) fn pass<T>(
        &self,
        operation: &'static str,
        run: impl FnOnce(Call) -> Result<T>,
    ) -> Result<T> {
        let site = Site::Model(self.class);
        self.state.counted(operation, site, |call| {
            run(call).map_err(|error| match error {
                Error::Torch(accelerate_torch::Error::UnusedParameters {
                    names, remedy, ..
                }) => unused::found(&self.state, &self.group, call, names, remedy),
                other => other,
            })
        })
    }

    /// Whether the next backward pass is one that exchanges gradients; it is then taken as run.
    fn takes_part(&self) -> bool {
        self.awaits_backward.replace(false)
    }
}

/// Runs a backward pass, which exchanges the gradients of those `models` that wait for one.
///
/// # Collective
/// Where one of them does, every rank calls this.
///
/// # Errors
/// A loss without a graph; [`Error::UnusedParameters`] if other ranks have no gradient for a
/// parameter of which this one has; [`Error::CollectiveIncomplete`] if others are missing.
pub(crate) fn backward<'a>(
    state: &PartialState,
    site: Site,
    models: impl IntoIterator<Item = &'a DataParallel>,
    loss: &Tensor,
) -> Result<()> {
    let run = || autograd::backward(&[loss.shallow_clone()], None, BackwardOptions::default());
    // All of them are asked: each forgets that it waited.
    let waited = models.into_iter().filter(|model| model.takes_part());
    let exchanges = waited.count() > 0;
    let Some(group) = state.process_group().filter(|_| exchanges) else {
        return Ok(run()?);
    };
    state.counted("backward", site, |call| {
        run().map_err(|error| match explain(state, Some(call), error) {
            Error::CollectiveIncomplete { report, source } => {
                match unused::of_others(state, group, call) {
                    Some(unused) => unused,
                    None => Error::CollectiveIncomplete { report, source },
                }
            }
            other => other,
        })
    })
}
