use std::cell::Cell;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use accelerate_torch::ProcessGroup;

use super::IterableDataset;
use super::batcher::{ShortBatch, StreamSource};
use super::dataset_shard::IterableLayout;
use super::loader::{IterableDataLoader, IterableDataLoaderIter};
use super::lock_step::{Step, Turn, agree};
use super::rank_stream::RankStream;
use crate::data::collate::Collate;
use crate::data::dispatcher::place;
use crate::data::progress::LoaderScope;
use crate::data::shard_options::ShardOptions;
use crate::data::stack::Stack;
use crate::{Error, Result};

/// The part of an [`IterableDataLoader`] that one rank reads, on this rank's device.
///
/// A data set that can be cut into enough parts ([`IterableDataset::num_shards`]) gives each
/// rank its own. These may differ in length: with `even_batches` and a process group all
/// ranks take as many steps as the longest part has, and ranks that are through begin their
/// part again; without, each loop ends where its part does. Any other data set is read whole
/// by every rank, which keeps its own slices ([`IterableDatasetShard`](super::IterableDatasetShard)).
///
/// It reads one batch ahead, so that the loop knows that a batch is the last one
/// while it still works on it: [`LoaderProgress::end_of_dataloader`](crate::data::LoaderProgress::end_of_dataloader).
///
/// # Collective
/// Every step is one for parts that are kept even: every rank takes the same steps, and an
/// error of one rank ends the loop on all. Starting an epoch is one where the data set has a
/// generator and a [`SyncGenerator`](crate::data::SyncGenerator) is given.
///
/// # Source
/// `accelerate.data_loader.DataLoaderShard` over an `IterableDataset`. Differs: parts of
/// different length do not leave ranks waiting for each other, and the remainder of shared
/// streams is known at the last batch, so that what fills it up is trimmed from metrics. What
/// a rank repeats of a part of its own is not.
pub struct IterableDataLoaderShard<D, C = Stack> {
    loader: IterableDataLoader<RankStream<D>, C>,
    options: ShardOptions,
    /// Set where the parts of ranks are to be kept even.
    lock_step: Option<ProcessGroup>,
    total_batch_size: usize,
    iteration: Cell<u64>,
}

impl<D: IterableDataset, C: Collate<D::Item>> IterableDataLoaderShard<D, C> {
    /// The part of `loader` that `options` names; ranks that read parts of their own are kept
    /// even through `group`.
    ///
    /// # Errors
    /// Those of [`IterableDatasetShard::new`](super::IterableDatasetShard::new).
    pub fn new(
        loader: IterableDataLoader<D, C>,
        options: ShardOptions,
        group: Option<&ProcessGroup>,
    ) -> Result<Self> {
        let batch_size = loader.batch_size();
        let layout = IterableLayout {
            batch_size,
            drop_last: loader.drop_last(),
            num_processes: options.num_processes,
            process_index: options.process_index,
            split_batches: options.split_batches,
        };
        let loader = for_rank(loader, layout, options.even_batches)?;
        let own_part = matches!(loader.dataset(), RankStream::Part { .. });
        let ranks = options.num_processes.get();
        Ok(Self {
            total_batch_size: if options.split_batches {
                batch_size.get()
            } else {
                batch_size.get() * ranks
            },
            lock_step: group.filter(|_| own_part && options.even_batches).cloned(),
            loader,
            options,
            iteration: Cell::new(0),
        })
    }

    /// The number of batches in one epoch on this rank, where it is known beforehand.
    pub fn known_len(&self) -> Option<usize> {
        self.loader.known_len()
    }

    /// The number of samples in one step of all ranks together.
    pub fn total_batch_size(&self) -> usize {
        self.total_batch_size
    }

    /// The number of samples in the data set, over all ranks, where it is known.
    pub fn total_dataset_length(&self) -> Option<usize> {
        self.dataset().known_len()
    }

    /// The data set, whole.
    pub fn dataset(&self) -> &D {
        self.loader.dataset().dataset()
    }

    /// The number of samples in a batch of this rank.
    pub fn batch_size(&self) -> NonZeroUsize {
        self.loader.batch_size()
    }

    /// Whether a last batch with fewer samples is left out.
    pub fn drop_last(&self) -> bool {
        self.loader.drop_last()
    }

    /// The epoch that comes next: how many were gone through to their end, or what was set.
    pub fn iteration(&self) -> u64 {
        self.iteration.get()
    }

    /// Sets the epoch that comes next.
    pub fn set_epoch(&self, epoch: u64) {
        self.iteration.set(epoch);
        self.loader.set_epoch(epoch);
    }

    /// Draws what starting an epoch draws, without reading.
    pub(in crate::data) fn draw_base_seed(&self) -> Result<()> {
        self.loader.base_seed().map(drop)
    }

    fn synchronize_generator(&self) -> Result<()> {
        match (&self.options.sync_generator, self.dataset().generator()) {
            (Some(sync), Some(generator)) => sync(generator),
            _ => Ok(()),
        }
    }

    /// What the last batch holds beside repetitions; called at the end of an epoch.
    fn remainder(&self) -> Option<usize> {
        match self.loader.dataset() {
            RankStream::Slices(shard) => shard.remainder(),
            RankStream::Whole(_) | RankStream::Part { .. } => None,
        }
    }
}

/// The loader of one rank's stream.
fn for_rank<D: IterableDataset, C>(
    loader: IterableDataLoader<D, C>,
    layout: IterableLayout,
    even_batches: bool,
) -> Result<IterableDataLoader<RankStream<D>, C>> {
    let source = Arc::into_inner(loader.source).ok_or_else(|| Error::Argument {
        operation: "IterableDataLoaderShard::new",
        expected: "a loader that nobody reads from".to_owned(),
        found: "one with running workers".to_owned(),
    })?;
    let dataset = RankStream::new(source.dataset, layout)?;
    let (batch_size, short) = match &dataset {
        RankStream::Slices(shard) => (shard.own_batch_size(), source.short),
        RankStream::Part { .. } if even_batches && source.short == ShortBatch::Keep => {
            (source.batch_size, ShortBatch::FillUp)
        }
        RankStream::Whole(_) | RankStream::Part { .. } => (source.batch_size, source.short),
    };
    Ok(IterableDataLoader {
        source: Arc::new(StreamSource {
            dataset,
            collate: source.collate,
            batch_size,
            short,
        }),
        num_workers: loader.num_workers,
        prefetch_factor: loader.prefetch_factor,
        generator: loader.generator,
    })
}

impl<D, C> IterableDataLoaderShard<D, C>
where
    D: IterableDataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    /// Starts an epoch; a failure to start is the first item.
    pub fn iter(&self) -> IterableDataLoaderShardIter<'_, D, C> {
        let (ahead, batches) = match self.synchronize_generator() {
            Ok(()) => {
                self.loader.set_epoch(self.iteration.get());
                (Ahead::Nothing, Some(self.loader.iter()))
            }
            Err(error) => (Ahead::Failed(error), None),
        };
        IterableDataLoaderShardIter {
            shard: self,
            batches,
            again: None,
            read_any: false,
            ahead,
            scope: Some(self.options.progress.begin(None)),
        }
    }
}

impl<'a, D, C> IntoIterator for &'a IterableDataLoaderShard<D, C>
where
    D: IterableDataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    type Item = Result<C::Batch>;
    type IntoIter = IterableDataLoaderShardIter<'a, D, C>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<D, C> fmt::Debug for IterableDataLoaderShard<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterableDataLoaderShard")
            .field("loader", &self.loader)
            .field("options", &self.options)
            .field("lock_step", &self.lock_step.is_some())
            .field("iteration", &self.iteration)
            .finish_non_exhaustive()
    }
}

/// The batches of one epoch of an [`IterableDataLoaderShard`].
pub struct IterableDataLoaderShardIter<'a, D: IterableDataset, C: Collate<D::Item>> {
    shard: &'a IterableDataLoaderShard<D, C>,
    /// This rank's batches; `None` once they have ended.
    batches: Option<IterableDataLoaderIter<'a, RankStream<D>, C>>,
    /// The same batches again, for a rank that is through while others are not.
    again: Option<IterableDataLoaderIter<'a, RankStream<D>, C>>,
    read_any: bool,
    ahead: Ahead<C::Batch>,
    scope: Option<LoaderScope>,
}

/// What was read ahead.
enum Ahead<B> {
    /// Nothing yet.
    Nothing,
    /// The batch that comes next.
    Batch(B),
    /// The error that comes next, and last.
    Failed(Error),
    /// The last batch was handed out.
    End,
}

impl<D, C> IterableDataLoaderShardIter<'_, D, C>
where
    D: IterableDataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    /// The next batch of this rank, `None` at the end of the loop.
    fn read(&mut self) -> Result<Option<C::Batch>> {
        let options = &self.shard.options;
        let batch = match &self.shard.lock_step {
            None => self.read_own().transpose()?,
            Some(group) => self.read_together(group)?,
        };
        batch
            .map(|batch| place(batch, options.device, options.non_blocking))
            .transpose()
    }

    fn read_own(&mut self) -> Option<Result<C::Batch>> {
        let batch = self.batches.as_mut()?.next();
        match &batch {
            Some(_) => self.read_any = true,
            None => self.batches = None,
        }
        batch
    }

    /// As [`read_own`](Self::read_own), at the pace of all ranks.
    fn read_together(&mut self, group: &ProcessGroup) -> Result<Option<C::Batch>> {
        let (turn, batch) = match self.read_own() {
            Some(Ok(batch)) => (Turn::Batch, Ok(Some(batch))),
            Some(Err(error)) => (Turn::Failed, Err(error)),
            None if !self.read_any => (Turn::Empty, Ok(None)),
            None => match self.read_again() {
                Ok(batch) => (Turn::Ended, Ok(Some(batch))),
                Err(error) => (Turn::Failed, Err(error)),
            },
        };
        match (agree(group, turn, batch.as_ref().err()), batch) {
            // A rank's own error says more than that there was one.
            (_, Err(error)) | (Err(error), _) => Err(error),
            (Ok(Step::End), _) => Ok(None),
            (Ok(Step::Go), batch) => batch,
        }
    }

    fn read_again(&mut self) -> Result<C::Batch> {
        let loader = &self.shard.loader;
        if let Some(batch) = self.again.as_mut().and_then(Iterator::next) {
            return batch;
        }
        let mut again = loader.iter();
        let batch = again.next();
        self.again = Some(again);
        batch.unwrap_or_else(|| {
            Err(Error::Argument {
                operation: "IterableDataset::shard",
                expected: "the same samples when it is called again, for ranks whose part is \
                           shorter than others'"
                    .to_owned(),
                found: "none; turn `even_batches` off for parts that can be read only once"
                    .to_owned(),
            })
        })
    }

    fn read_ahead(&mut self) {
        self.ahead = match self.read() {
            Ok(Some(batch)) => Ahead::Batch(batch),
            Err(error) => Ahead::Failed(error),
            Ok(None) => {
                if let Some(scope) = &self.scope {
                    scope.set_remainder(self.shard.remainder());
                    scope.reach_end();
                }
                Ahead::End
            }
        };
    }

    fn finish(&mut self, complete: bool) {
        (self.batches, self.again) = (None, None);
        if self.scope.take().is_some() && complete {
            self.shard.iteration.set(self.shard.iteration.get() + 1);
        }
    }
}

impl<D, C> Iterator for IterableDataLoaderShardIter<'_, D, C>
where
    D: IterableDataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    type Item = Result<C::Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = matches!(self.ahead, Ahead::Nothing);
        if first {
            self.read_ahead();
        }
        match std::mem::replace(&mut self.ahead, Ahead::End) {
            Ahead::Batch(batch) => {
                self.read_ahead();
                Some(Ok(batch))
            }
            Ahead::Failed(error) => {
                self.finish(false);
                Some(Err(error))
            }
            Ahead::Nothing | Ahead::End => {
                // A loop without a batch is no epoch.
                self.finish(!first);
                None
            }
        }
    }
}

impl<D: IterableDataset, C: Collate<D::Item>> fmt::Debug for IterableDataLoaderShardIter<'_, D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterableDataLoaderShardIter")
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
