//! Passes as calls that all ranks make: counted, and explained where they fail.

use super::{Call, DataParallel, Site, unused};
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
    pub(in crate::parallel) fn takes_part(&self) -> bool {
        self.awaits_backward.replace(false)
    }
}
