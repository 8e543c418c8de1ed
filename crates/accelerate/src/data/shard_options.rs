use std::fmt;
use std::num::NonZeroUsize;

use accelerate_torch::Generator;
use tch::Device;

use super::progress::LoaderProgress;
use crate::{Error, Result};

/// Sets a generator to the state it has on rank 0.
///
/// # Collective
/// Every rank calls it once at the start of each epoch.
pub type SyncGenerator = Box<dyn Fn(&Generator) -> Result<()>>;

/// Sets libtorch's global generators to the states they have on rank 0.
///
/// # Collective
/// Every rank calls it once at the start of each epoch.
pub type SyncGlobal = Box<dyn Fn() -> Result<()>>;

/// Says more of an error between ranks, such as which of them are gone.
pub type Explain = Box<dyn Fn(Error) -> Error>;

/// How a prepared loader divides its batches, and where it puts them.
pub struct ShardOptions {
    /// The number of ranks.
    pub num_processes: NonZeroUsize,
    /// This rank, below `num_processes`.
    pub process_index: usize,
    /// Takes the loader's batch size as that of all ranks together and cuts each batch.
    pub split_batches: bool,
    /// Fills the last round up with samples from the start of the epoch's order.
    pub even_batches: bool,
    /// Puts a [`SeedableRandomSampler`](super::SeedableRandomSampler) in the place of a random sampler.
    pub use_seedable_sampler: bool,
    /// The seed of that sampler, instead of the seed of libtorch's global generator.
    pub data_seed: Option<u64>,
    /// Where batches are moved to; `None` leaves them where they are.
    pub device: Option<Device>,
    /// Whether a copy to the device may still run when the batch is handed out.
    pub non_blocking: bool,
    /// How the sampler's generator gets rank 0's state; `None` leaves it alone.
    pub sync_generator: Option<SyncGenerator>,
    /// Sets global generators to their states on rank 0 when an epoch begins; `None` leaves them alone.
    pub sync_global: Option<SyncGlobal>,
    /// Says more of errors between ranks; `None` leaves them as they are.
    pub explain: Option<Explain>,
    /// Where loops over this loader are registered.
    pub progress: LoaderProgress,
}

impl Default for ShardOptions {
    /// One rank that gets everything, where it is.
    fn default() -> Self {
        Self {
            num_processes: NonZeroUsize::MIN,
            process_index: 0,
            split_batches: false,
            even_batches: true,
            use_seedable_sampler: false,
            data_seed: None,
            device: None,
            non_blocking: false,
            sync_generator: None,
            sync_global: None,
            explain: None,
            progress: LoaderProgress::new(),
        }
    }
}

impl ShardOptions {
    /// An error with what [`explain`](Self::explain) knows of it.
    pub(super) fn explained(&self, error: Error) -> Error {
        match &self.explain {
            Some(explain) => explain(error),
            None => error,
        }
    }
}

impl fmt::Debug for ShardOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardOptions")
            .field("num_processes", &self.num_processes)
            .field("process_index", &self.process_index)
            .field("split_batches", &self.split_batches)
            .field("even_batches", &self.even_batches)
            .field("use_seedable_sampler", &self.use_seedable_sampler)
            .field("data_seed", &self.data_seed)
            .field("device", &self.device)
            .field("non_blocking", &self.non_blocking)
            .finish_non_exhaustive()
    }
}
