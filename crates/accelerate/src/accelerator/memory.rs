//! Seeds, memory, and the batch size that fits into it.

use super::Accelerator;
use crate::Result;
use crate::memory::{self, BatchSizeSearch};
use crate::random::{self, SeedOptions, Seeded};

impl Accelerator {
    /// Drops what was prepared, forgets it, and gives cached device memory back.
    ///
    /// Accumulation starts anew with its first batch, and a loss scaler lets go of the gradients
    /// that it was to divide; the scale that it has found stays.
    ///
    /// A value that others still hold lives on; give everything away here, or drop it before.
    ///
    /// ```
    /// # use accelerate::nn::{Factory, Linear};
    /// # let accelerator = accelerate::Accelerator::new()?;
    /// # let model = accelerator.prepare(Linear::new(1, 1, &Factory::default())?)?;
    /// accelerator.free_memory(model)?;
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`memory::release_memory`].
    ///
    /// # Source
    /// `Accelerator.free_memory` and `clear`, which are one here.
    pub fn free_memory<T>(&self, objects: T) -> Result<()> {
        let shared = &self.shared;
        shared.registry.clear();
        shared.saves.release();
        shared.gradient_state.restart();
        if let Some(scaler) = self.scaler() {
            scaler.release();
        }
        memory::release_memory(objects)
    }

    /// Looks for a batch size that fits into memory, the same on every rank.
    ///
    /// As [`memory::find_executable_batch_size`].
    #[must_use]
    pub fn find_executable_batch_size(&self, starting_batch_size: usize) -> BatchSizeSearch {
        memory::find_executable_batch_size(starting_batch_size).on(self.state().clone())
    }

    /// Seeds this process's random generators.
    ///
    /// # Errors
    /// As [`random::set_seed`].
    pub fn set_seed(&self, seed: u64, options: SeedOptions) -> Result<Seeded> {
        random::set_seed_as(Some(self.state()), seed, options)
    }
}
