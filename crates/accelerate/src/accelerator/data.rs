use std::rc::Rc;

use super::Accelerator;
use crate::data::{LoaderControl, RestOfEpoch, RngType, skip_first_batches};

impl Accelerator {
    /// The rest of an epoch of `loader`, behind its first `num_batches` batches on this rank.
    ///
    /// See [`skip_first_batches`].
    #[must_use]
    pub fn skip_first_batches<'a, L>(
        &self,
        loader: &'a L,
        num_batches: usize,
    ) -> RestOfEpoch<'a, L> {
        skip_first_batches(loader, num_batches)
    }

    /// The loaders that this accelerator prepared and that still exist, in that order.
    #[must_use]
    pub fn prepared_loaders(&self) -> Vec<Rc<dyn LoaderControl>> {
        self.shared.registry.loaders.alive()
    }

    /// Whether prepared loaders fill the last step of an epoch up, so that all ranks take equal steps.
    #[must_use]
    pub fn even_batches(&self) -> bool {
        self.shared.even_batches.get()
    }

    /// Changes [`even_batches`](Self::even_batches): for all loaders that are prepared,
    /// from their next epoch on, and for those to come.
    ///
    /// # Source
    /// `Accelerator.even_batches`. Differs: there it holds for loaders to come only.
    pub fn set_even_batches(&self, even_batches: bool) {
        self.shared.even_batches.set(even_batches);
        for loader in self.prepared_loaders() {
            loader.set_even_batches(even_batches);
        }
    }

    /// Whether a saved state holds where the prepared loaders stand.
    #[must_use]
    pub fn use_stateful_dataloader(&self) -> bool {
        self.shared.dataloader_config.use_stateful_dataloader
    }

    /// The random generators that get rank 0's state at the start of each epoch.
    #[must_use]
    pub fn rng_types(&self) -> &[RngType] {
        &self.shared.rng_types
    }
}
