use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use accelerate_torch::Generator;

use super::IterableDataset;
use super::batcher::{ShortBatch, StreamSource};
use super::loader::IterableDataLoader;
use crate::data::collate::Collate;
use crate::data::crew::Bunk;
use crate::data::stack::Stack;
use crate::data::worker::WorkerOptions;
use crate::{Error, Result};

/// Settings for an [`IterableDataLoader`]; [`build`](Self::build) checks them.
pub struct IterableDataLoaderBuilder<D, C> {
    dataset: D,
    collate: C,
    batch_size: usize,
    drop_last: bool,
    workers: WorkerOptions,
    generator: Option<Arc<Generator>>,
}

impl<D: IterableDataset> IterableDataLoaderBuilder<D, Stack> {
    pub(super) fn new(dataset: D) -> Self {
        Self {
            dataset,
            collate: Stack,
            batch_size: 1,
            drop_last: false,
            workers: WorkerOptions::default(),
            generator: None,
        }
    }
}

impl<D: IterableDataset, C> IterableDataLoaderBuilder<D, C> {
    /// The number of samples in a batch, 1 if not set.
    #[must_use]
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = batch_size;
        self
    }

    /// Whether a last batch with fewer samples is left out; off if not set.
    #[must_use]
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// How samples become a batch, instead of [`Stack`].
    #[must_use]
    pub fn collate<E: Collate<D::Item>>(self, collate: E) -> IterableDataLoaderBuilder<D, E> {
        IterableDataLoaderBuilder {
            dataset: self.dataset,
            collate,
            batch_size: self.batch_size,
            drop_last: self.drop_last,
            workers: self.workers,
            generator: self.generator,
        }
    }

    /// The number of threads that read and make batches, at most one for each part of the
    /// stream; with 0, which is what is used if not set, the caller's thread does.
    #[must_use]
    pub fn num_workers(mut self, num_workers: usize) -> Self {
        self.workers.num_workers = num_workers;
        self
    }

    /// How many batches each worker makes ahead, 2 if not set.
    #[must_use]
    pub fn prefetch_factor(mut self, prefetch_factor: usize) -> Self {
        self.workers.prefetch_factor = prefetch_factor;
        self
    }

    /// How long a batch of a worker may be waited for; without end if not set.
    ///
    /// A worker that does not deliver in time ends the epoch with
    /// [`Error::WorkerTimeout`], which names it and what it is reading.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.workers.timeout = Some(timeout);
        self
    }

    /// Whether workers stay for the epochs to come instead of being started anew for each;
    /// off if not set.
    #[must_use]
    pub fn persistent_workers(mut self, persistent_workers: bool) -> Self {
        self.workers.bunk = persistent_workers.then(Bunk::default);
        self
    }

    /// The generator that worker seeds are drawn from, instead of libtorch's global one.
    #[must_use]
    pub fn generator(mut self, generator: impl Into<Arc<Generator>>) -> Self {
        self.generator = Some(generator.into());
        self
    }

    /// The loader.
    ///
    /// # Errors
    /// [`Error::Argument`] if a size is 0.
    pub fn build(self) -> Result<IterableDataLoader<D, C>>
    where
        C: Collate<D::Item>,
    {
        self.workers.check("IterableDataLoaderBuilder::build")?;
        Ok(IterableDataLoader {
            source: Arc::new(StreamSource {
                dataset: self.dataset,
                collate: self.collate,
                batch_size: nonzero("IterableDataLoaderBuilder::batch_size", self.batch_size)?,
                short: if self.drop_last {
                    ShortBatch::Drop
                } else {
                    ShortBatch::Keep
                },
            }),
            workers: self.workers,
            generator: self.generator,
        })
    }
}

impl<D, C> fmt::Debug for IterableDataLoaderBuilder<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterableDataLoaderBuilder")
            .field("batch_size", &self.batch_size)
            .field("drop_last", &self.drop_last)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

fn nonzero(operation: &'static str, value: usize) -> Result<NonZeroUsize> {
    NonZeroUsize::new(value).ok_or_else(|| Error::Argument {
        operation,
        expected: "a number of at least 1".into(),
        found: "0".into(),
    })
}
