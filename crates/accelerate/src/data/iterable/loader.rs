use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use accelerate_torch::Generator;

use super::IterableDataset;
use super::batcher::{Batcher, Part, ShortBatch, StreamSource};
use super::builder::IterableDataLoaderBuilder;
use super::rank_stream::shards_natively;
use super::worker::StreamWorkers;
use crate::data::collate::Collate;
use crate::data::stack::Stack;
use crate::{Error, Result};

/// Batches of a stream, read in the caller's thread or in worker threads.
///
/// Each `for batch in &loader` is one epoch. With one worker, batches come in the order of
/// the stream. More workers than one are used only where the data set can be cut into parts
/// ([`IterableDataset::num_shards`]): each reads its own, and their batches come in turn, so
/// that each part may end with a short batch. An error ends the epoch.
///
/// # Source
/// `torch.utils.data.DataLoader` over an `IterableDataset`. Differs: a stream that cannot be
/// cut is read by one worker instead of once by each.
pub struct IterableDataLoader<D, C = Stack> {
    pub(super) source: Arc<StreamSource<D, C>>,
    pub(super) num_workers: usize,
    pub(super) prefetch_factor: usize,
    pub(super) generator: Option<Arc<Generator>>,
}

impl<D: IterableDataset> IterableDataLoader<D, Stack> {
    /// Settings for a loader over `dataset`, which collates with [`Stack`] until told otherwise.
    pub fn builder(dataset: D) -> IterableDataLoaderBuilder<D, Stack> {
        IterableDataLoaderBuilder::new(dataset)
    }
}

impl<D: IterableDataset, C: Collate<D::Item>> IterableDataLoader<D, C> {
    /// The number of batches in one epoch, where the number of samples is known and one
    /// reader makes all batches.
    pub fn known_len(&self) -> Option<usize> {
        let samples = self.source.dataset.known_len()?;
        let size = self.batch_size().get();
        (self.workers() <= 1).then(|| {
            if self.drop_last() {
                samples / size
            } else {
                samples.div_ceil(size)
            }
        })
    }

    /// The data set.
    pub fn dataset(&self) -> &D {
        &self.source.dataset
    }

    /// The number of samples in a batch.
    pub fn batch_size(&self) -> NonZeroUsize {
        self.source.batch_size
    }

    /// Whether a last batch with fewer samples is left out.
    pub fn drop_last(&self) -> bool {
        self.source.short == ShortBatch::Drop
    }

    /// Tells the data set which epoch comes next.
    pub fn set_epoch(&self, epoch: u64) {
        self.source.dataset.set_epoch(epoch);
    }

    /// Whether the data set can give each of `num_processes` ranks a part of its own.
    pub(crate) fn shards_natively(&self, num_processes: NonZeroUsize, split: bool) -> bool {
        shards_natively(self.dataset(), num_processes, split)
    }

    /// The number of threads that read: no more than there are parts.
    fn workers(&self) -> usize {
        self.num_workers
            .min(self.source.dataset.num_shards().max(1))
    }

    /// Draws the number that seeds the workers; drawn without workers too, so
    /// that what is drawn after does not depend on how many there are.
    pub(super) fn base_seed(&self) -> Result<u64> {
        let drawn = match &self.generator {
            Some(own) => own.random_i64()?,
            None => Generator::default_cpu()?.random_i64()?,
        };
        Ok(drawn.cast_unsigned())
    }
}

impl<D, C> IterableDataLoader<D, C>
where
    D: IterableDataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    /// Starts an epoch; a failure to start is the first item.
    pub fn iter(&self) -> IterableDataLoaderIter<'_, D, C> {
        let reader = self.reader();
        IterableDataLoaderIter {
            reader: reader.unwrap_or_else(|error| Reader::Failed(Some(error))),
        }
    }

    fn reader(&self) -> Result<Reader<'_, D, C>> {
        let base_seed = self.base_seed()?;
        let workers = self.workers();
        if workers == 0 {
            return Ok(Reader::Here(Batcher::start(&self.source, Part::WHOLE)));
        }
        StreamWorkers::start(&self.source, workers, self.prefetch_factor, base_seed)
            .map(Reader::Workers)
    }
}

impl<'a, D, C> IntoIterator for &'a IterableDataLoader<D, C>
where
    D: IterableDataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    type Item = Result<C::Batch>;
    type IntoIter = IterableDataLoaderIter<'a, D, C>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<D, C> fmt::Debug for IterableDataLoader<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterableDataLoader")
            .field("batch_size", &self.source.batch_size)
            .field("num_workers", &self.num_workers)
            .field("prefetch_factor", &self.prefetch_factor)
            .finish_non_exhaustive()
    }
}

/// The batches of one epoch of an [`IterableDataLoader`].
pub struct IterableDataLoaderIter<'a, D: IterableDataset, C: Collate<D::Item>> {
    reader: Reader<'a, D, C>,
}

enum Reader<'a, D: IterableDataset, C: Collate<D::Item>> {
    Failed(Option<Error>),
    Here(Batcher<'a, D, C>),
    Workers(StreamWorkers<C::Batch>),
}

impl<D: IterableDataset, C: Collate<D::Item>> Iterator for IterableDataLoaderIter<'_, D, C> {
    type Item = Result<C::Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.reader {
            Reader::Failed(error) => error.take().map(Err),
            Reader::Here(batches) => batches.next(),
            Reader::Workers(workers) => workers.next(),
        }
    }
}

impl<D: IterableDataset, C: Collate<D::Item>> fmt::Debug for IterableDataLoaderIter<'_, D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterableDataLoaderIter")
            .finish_non_exhaustive()
    }
}
