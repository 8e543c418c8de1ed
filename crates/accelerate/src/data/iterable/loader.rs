use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use accelerate_torch::Generator;

use super::IterableDataset;
use super::batcher::{Batcher, Part, ShortBatch, StreamSource};
use super::builder::IterableDataLoaderBuilder;
use super::rank_stream::shards_natively;
use super::turns::Turns;
use super::worker::StreamWorkers;
use crate::data::collate::Collate;
use crate::data::stack::Stack;
use crate::data::worker::WorkerOptions;
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
    pub(super) workers: WorkerOptions,
    pub(super) generator: Option<Arc<Generator>>,
}

/// Where in an epoch a loop over a stream starts, and what seeds its workers.
#[derive(Debug, Clone, Default)]
pub(super) struct Start {
    /// `None` at the first batch.
    pub(super) turns: Option<Turns>,
    /// `None` draws one.
    pub(super) base_seed: Option<u64>,
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
        self.workers
            .num_workers
            .min(self.source.dataset.num_shards().max(1))
    }

    /// In how many parts the stream is read.
    pub(super) fn readers(&self) -> usize {
        self.workers().max(1)
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
        self.iter_from(Start::default())
    }

    /// Starts an epoch at a place of one's choice.
    pub(super) fn iter_from(&self, start: Start) -> IterableDataLoaderIter<'_, D, C> {
        let turns = start.turns.unwrap_or_else(|| Turns::begin(self.workers()));
        let base_seed = start.base_seed.map_or_else(|| self.base_seed(), Ok);
        let reader = base_seed.and_then(|seed| self.reader(&turns, seed));
        IterableDataLoaderIter {
            reader: reader.unwrap_or_else(|error| Reader::Failed(Some(error))),
        }
    }

    /// The parts are those of `turns`, whatever the number of workers: a loop that goes on
    /// keeps its order.
    fn reader(&self, turns: &Turns, base_seed: u64) -> Result<Reader<'_, D, C>> {
        if self.workers.num_workers > 0 {
            return StreamWorkers::start(&self.source, turns, &self.workers, base_seed)
                .map(Reader::Workers);
        }
        let num = turns.parts.len();
        let part = |index: usize| {
            let passed_over = turns.parts.get(index).copied().unwrap_or_default();
            let part = Part { num, index };
            (index, Batcher::start(&self.source, part, passed_over))
        };
        Ok(Reader::Here(turns.order().into_iter().map(part).collect()))
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
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

/// The batches of one epoch of an [`IterableDataLoader`].
pub struct IterableDataLoaderIter<'a, D: IterableDataset, C: Collate<D::Item>>
where
    C::Batch: 'static,
{
    reader: Reader<'a, D, C>,
}

enum Reader<'a, D: IterableDataset, C: Collate<D::Item>>
where
    C::Batch: 'static,
{
    Failed(Option<Error>),
    /// The parts in the order of their turns.
    Here(VecDeque<(usize, Batcher<'a, D, C>)>),
    Workers(StreamWorkers<C::Batch>),
}

impl<D, C> IterableDataLoaderIter<'_, D, C>
where
    D: IterableDataset,
    C: Collate<D::Item>,
    C::Batch: 'static,
{
    /// The next batch, with the part that it is of.
    pub(super) fn next_of_part(&mut self) -> Option<(usize, Result<C::Batch>)> {
        match &mut self.reader {
            Reader::Failed(error) => Some((0, Err(error.take()?))),
            Reader::Here(parts) => {
                while let Some((part, mut batches)) = parts.pop_front() {
                    if let Some(batch) = batches.next() {
                        parts.push_back((part, batches));
                        return Some((part, batch));
                    }
                }
                None
            }
            Reader::Workers(workers) => workers.next_of_part(),
        }
    }
}

impl<D, C> Iterator for IterableDataLoaderIter<'_, D, C>
where
    D: IterableDataset,
    C: Collate<D::Item>,
    C::Batch: 'static,
{
    type Item = Result<C::Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_of_part().map(|(_, batch)| batch)
    }
}

impl<D: IterableDataset, C: Collate<D::Item>> fmt::Debug for IterableDataLoaderIter<'_, D, C>
where
    C::Batch: 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterableDataLoaderIter")
            .finish_non_exhaustive()
    }
}
