use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use accelerate_torch::Generator;

use super::batch_sampler::{BatchSampler, IndexBatches};
use super::collate::Collate;
use super::crew::Bunk;
use super::dataset::Dataset;
use super::loader::DataLoader;
use super::random_sampler::RandomSampler;
use super::sampler::{Sampler, SequentialSampler};
use super::stack::Stack;
use super::worker::{Source, WorkerOptions};
use crate::{Error, Result};

/// Settings for a [`DataLoader`]; [`build`](Self::build) checks them.
pub struct DataLoaderBuilder<D, C> {
    dataset: D,
    collate: C,
    batch_size: Option<usize>,
    shuffle: bool,
    sampler: Option<Box<dyn Sampler>>,
    batch_sampler: Option<Box<dyn IndexBatches>>,
    drop_last: bool,
    workers: WorkerOptions,
    pin_memory: bool,
    generator: Option<Arc<Generator>>,
    seed: Option<u64>,
}

impl<D: Dataset> DataLoaderBuilder<D, Stack> {
    pub(super) fn new(dataset: D) -> Self {
        Self {
            dataset,
            collate: Stack,
            batch_size: None,
            shuffle: false,
            sampler: None,
            batch_sampler: None,
            drop_last: false,
            workers: WorkerOptions::default(),
            pin_memory: false,
            generator: None,
            seed: None,
        }
    }
}

impl<D: Dataset, C> DataLoaderBuilder<D, C> {
    /// The number of samples in a batch, 1 if not set.
    #[must_use]
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = Some(batch_size);
        self
    }

    /// Whether each epoch has its own random order; off if not set.
    #[must_use]
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// The order of samples, instead of `shuffle`.
    #[must_use]
    pub fn sampler(mut self, sampler: impl Sampler + 'static) -> Self {
        self.sampler = Some(Box::new(sampler));
        self
    }

    /// The batches of samples, instead of `batch_size`, `shuffle`, `sampler` and `drop_last`.
    #[must_use]
    pub fn batch_sampler(mut self, batch_sampler: impl IndexBatches + 'static) -> Self {
        self.batch_sampler = Some(Box::new(batch_sampler));
        self
    }

    /// Whether a last batch with fewer samples is left out; off if not set.
    #[must_use]
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// How samples become a batch, instead of [`Stack`].
    ///
    /// ```
    /// use accelerate::data::DataLoader;
    /// use accelerate::tch::Tensor;
    ///
    /// let words = vec!["a".to_owned(), "four".to_owned()];
    /// let loader = DataLoader::builder(words)
    ///     .batch_size(2)
    ///     .collate(|words: Vec<String>| {
    ///         let lengths: Vec<i64> = words.iter().map(|word| word.len() as i64).collect();
    ///         Ok(Tensor::f_from_slice(&lengths)?)
    ///     })
    ///     .build()?;
    /// for lengths in &loader {
    ///     assert_eq!(Vec::<i64>::try_from(&lengths?)?, [1, 4]);
    /// }
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    #[must_use]
    pub fn collate<E: Collate<D::Item>>(self, collate: E) -> DataLoaderBuilder<D, E> {
        DataLoaderBuilder {
            dataset: self.dataset,
            collate,
            batch_size: self.batch_size,
            shuffle: self.shuffle,
            sampler: self.sampler,
            batch_sampler: self.batch_sampler,
            drop_last: self.drop_last,
            workers: self.workers,
            pin_memory: self.pin_memory,
            generator: self.generator,
            seed: self.seed,
        }
    }

    /// The number of threads that make batches; with 0, which is what is used
    /// if not set, the caller's thread makes them when it asks for them.
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

    /// Whether batches are made in pinned memory, from which a copy to a GPU can run
    /// beside the program (with `non_blocking`); off if not set.
    ///
    /// Without a GPU it does nothing but warn.
    #[must_use]
    pub fn pin_memory(mut self, pin_memory: bool) -> Self {
        self.pin_memory = pin_memory;
        self
    }

    /// The generator that orders and worker seeds are drawn from, instead of libtorch's global one.
    #[must_use]
    pub fn generator(mut self, generator: impl Into<Arc<Generator>>) -> Self {
        self.generator = Some(generator.into());
        self
    }

    /// As [`generator`](Self::generator), with a new generator of this seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The loader.
    ///
    /// # Errors
    /// [`Error::EmptyDataset`] without samples, [`Error::Argument`] if a size is
    /// 0 or two settings exclude each other.
    pub fn build(mut self) -> Result<DataLoader<D, C>>
    where
        C: Collate<D::Item>,
    {
        self.check()?;
        if let Some(seed) = self.seed {
            self.generator = Some(Arc::new(Generator::new(seed)?));
        }
        let batches = match self.batch_sampler.take() {
            Some(batches) => batches,
            None => Box::new(BatchSampler::boxed(
                self.order()?,
                nonzero(
                    "DataLoaderBuilder::batch_size",
                    self.batch_size.unwrap_or(1),
                )?,
                self.drop_last,
            )),
        };
        Ok(DataLoader {
            source: Arc::new(Source {
                dataset: self.dataset,
                collate: self.collate,
                pin_memory: self.pin_memory && can_pin(),
            }),
            batches,
            workers: self.workers,
            generator: self.generator,
        })
    }

    fn check(&self) -> Result<()> {
        if self.dataset.is_empty() {
            return Err(Error::EmptyDataset);
        }
        self.workers.check("DataLoaderBuilder::build")?;
        let exclusive = |operation, found: &str| {
            Err(Error::Argument {
                operation,
                expected: "to stand alone".into(),
                found: format!("{found} beside it; leave one of them out"),
            })
        };
        let shaped = self.batch_size.is_some() || self.drop_last;
        if self.batch_sampler.is_some() && (shaped || self.shuffle || self.sampler.is_some()) {
            return exclusive(
                "DataLoaderBuilder::batch_sampler",
                "`batch_size`, `shuffle`, `sampler` or `drop_last`",
            );
        }
        if self.sampler.is_some() && self.shuffle {
            return exclusive("DataLoaderBuilder::sampler", "`shuffle`");
        }
        if self.generator.is_some() && self.seed.is_some() {
            return exclusive("DataLoaderBuilder::generator", "`seed`");
        }
        Ok(())
    }

    fn order(&mut self) -> Result<Box<dyn Sampler>> {
        if let Some(sampler) = self.sampler.take() {
            return Ok(sampler);
        }
        let len = self.dataset.len();
        if !self.shuffle {
            return Ok(Box::new(SequentialSampler::new(len)));
        }
        let random = RandomSampler::new(len)?;
        Ok(Box::new(match &self.generator {
            Some(own) => random.generator(Arc::clone(own)),
            None => random,
        }))
    }
}

impl<D, C> fmt::Debug for DataLoaderBuilder<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoaderBuilder")
            .field("batch_size", &self.batch_size)
            .field("shuffle", &self.shuffle)
            .field("drop_last", &self.drop_last)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

fn can_pin() -> bool {
    let can = tch::Cuda::is_available();
    if !can {
        tracing::warn!("`pin_memory` has no effect: there is no GPU that could copy from it");
    }
    can
}

fn nonzero(operation: &'static str, value: usize) -> Result<NonZeroUsize> {
    NonZeroUsize::new(value).ok_or_else(|| Error::Argument {
        operation,
        expected: "a number of at least 1".into(),
        found: "0".into(),
    })
}
