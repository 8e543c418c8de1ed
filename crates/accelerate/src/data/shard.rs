use std::cell::Cell;
use std::fmt;
use std::num::NonZeroUsize;

use accelerate_torch::Generator;
use tch::{Device, Tensor};

use super::batch_sampler::IndexBatches;
use super::batch_sampler_shard::{BatchSamplerShard, ShardLayout};
use super::collate::Collate;
use super::dataset::Dataset;
use super::loader::{DataLoader, DataLoaderIter};
use super::progress::LoaderScope;
use super::random_sampler::SeedableRandomSampler;
use super::shard_options::ShardOptions;
use super::stack::Stack;
use crate::tree::Tree;
use crate::{Error, Result};

/// The part of a [`DataLoader`] that one rank sees, on this rank's device.
///
/// It reads one batch ahead, so that the loop knows that a batch is the last one
/// while it still works on it: [`LoaderProgress::end_of_dataloader`](super::LoaderProgress::end_of_dataloader).
///
/// # Collective
/// Starting an epoch over a shuffled loader is one where a
/// [`SyncGenerator`](super::SyncGenerator) is given: every rank starts its epochs in the same order.
///
/// # Source
/// `accelerate.data_loader.DataLoaderShard`. Differs: a loop that is left early
/// is no longer active, and the remainder counts what the sampler yields, not
/// what the data set holds.
pub struct DataLoaderShard<D, C = Stack> {
    loader: DataLoader<D, C>,
    options: ShardOptions,
    total_batch_size: Option<usize>,
    remainder: Option<usize>,
    iteration: Cell<u64>,
}

impl<D: Dataset, C: Collate<D::Item>> DataLoaderShard<D, C> {
    /// The part of `loader` that `options` names.
    ///
    /// # Errors
    /// Those of [`BatchSamplerShard::new`] and of making generators.
    pub fn new(mut loader: DataLoader<D, C>, options: ShardOptions) -> Result<Self> {
        prepare_sampler(loader.batches.as_mut(), &options)?;
        let ranks = options.num_processes.get();
        let batch_size = loader.batches.batch_size().map(NonZeroUsize::get);
        let total_batch_size = batch_size.map(|size| {
            if options.split_batches {
                size
            } else {
                size * ranks
            }
        });
        let samples = loader
            .batches
            .sampler()
            .map_or(loader.dataset().len(), |it| it.len());
        let remainder = total_batch_size
            .filter(|_| !loader.batches.drop_last())
            .map(|total| samples % total);
        if ranks > 1 {
            report_repetition(&options, total_batch_size, remainder);
            let layout = ShardLayout {
                num_processes: options.num_processes,
                process_index: options.process_index,
                split_batches: options.split_batches,
                even_batches: options.even_batches,
            };
            loader.batches = Box::new(BatchSamplerShard::new(loader.batches, layout)?);
        }
        Ok(Self {
            loader,
            options,
            total_batch_size,
            remainder,
            iteration: Cell::new(0),
        })
    }

    /// The number of batches in one epoch on this rank.
    pub fn len(&self) -> usize {
        self.loader.len()
    }

    /// Whether this rank gets no batch.
    pub fn is_empty(&self) -> bool {
        self.loader.is_empty()
    }

    /// The number of samples in one step of all ranks together; `None` if it varies.
    pub fn total_batch_size(&self) -> Option<usize> {
        self.total_batch_size
    }

    /// The number of samples in the data set, over all ranks.
    pub fn total_dataset_length(&self) -> usize {
        self.loader.dataset().len()
    }

    /// The data set, whole.
    pub fn dataset(&self) -> &D {
        self.loader.dataset()
    }

    /// The batches of indices that this rank asks for.
    pub fn batch_sampler(&self) -> &dyn IndexBatches {
        self.loader.batch_sampler()
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

    fn synchronize_generator(&self) -> Result<()> {
        let Some(sync) = &self.options.sync_generator else {
            return Ok(());
        };
        let Some(sampler) = self.loader.batches.sampler() else {
            return Ok(());
        };
        let Some(generator) = sampler.generator() else {
            return Ok(());
        };
        sync(generator)?;
        sampler.generator_synchronized()
    }

    fn place(&self, batch: Result<C::Batch>) -> Result<C::Batch> {
        let mut batch = batch?;
        if let Some(device) = self.options.device {
            batch.visit_mut(&mut |leaf| self.move_leaf(leaf, device))?;
        }
        Ok(batch)
    }

    fn move_leaf(&self, leaf: &mut Tensor, device: Device) -> Result<()> {
        if leaf.device() != device {
            let kind = leaf.f_kind()?;
            *leaf = leaf.f_to_device_(device, kind, self.options.non_blocking, false)?;
        }
        Ok(())
    }
}

/// Says once per job that training sees some samples twice.
fn report_repetition(options: &ShardOptions, total: Option<usize>, remainder: Option<usize>) {
    let (Some(total), Some(remainder)) = (total, remainder) else {
        return;
    };
    if options.even_batches && remainder > 0 && options.process_index == 0 {
        let repeated = total - remainder;
        tracing::info!(
            repeated,
            "the last step of each epoch is filled up with {repeated} samples from its start, so \
             that all ranks take equal steps; `even_batches: false` turns this off"
        );
    }
}

/// Gives a random sampler what it needs to have one order on every rank.
fn prepare_sampler(batches: &mut dyn IndexBatches, options: &ShardOptions) -> Result<()> {
    let Some(sampler) = batches.sampler_mut() else {
        return Ok(());
    };
    let Some(random) = sampler.as_random() else {
        return Ok(());
    };
    if options.use_seedable_sampler {
        let seed = match options.data_seed {
            Some(seed) => seed,
            None => Generator::default_cpu()?.initial_seed()?,
        };
        let seedable = SeedableRandomSampler::from_random(random.clone(), seed)?;
        *sampler = Box::new(seedable);
    } else if options.num_processes.get() > 1 {
        random.own_generator()?;
    }
    Ok(())
}

impl<D, C> DataLoaderShard<D, C>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    /// Starts an epoch; a failure to start is the first item.
    pub fn iter(&self) -> DataLoaderShardIter<'_, D, C> {
        let (failed, batches) = match self.synchronize_generator() {
            Ok(()) => {
                self.loader.set_epoch(self.iteration.get());
                (None, Some(self.loader.iter()))
            }
            Err(error) => (Some(error), None),
        };
        DataLoaderShardIter {
            shard: self,
            failed,
            batches,
            ahead: Ahead::Nothing,
            scope: Some(self.options.progress.begin(self.remainder)),
        }
    }
}

impl<'a, D, C> IntoIterator for &'a DataLoaderShard<D, C>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    type Item = Result<C::Batch>;
    type IntoIter = DataLoaderShardIter<'a, D, C>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<D, C> fmt::Debug for DataLoaderShard<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoaderShard")
            .field("loader", &self.loader)
            .field("options", &self.options)
            .field("iteration", &self.iteration)
            .finish_non_exhaustive()
    }
}

/// The batches of one epoch of a [`DataLoaderShard`].
pub struct DataLoaderShardIter<'a, D: Dataset, C: Collate<D::Item>> {
    shard: &'a DataLoaderShard<D, C>,
    failed: Option<Error>,
    batches: Option<DataLoaderIter<'a, D, C>>,
    ahead: Ahead<C::Batch>,
    scope: Option<LoaderScope>,
}

/// The batch that was read ahead.
enum Ahead<B> {
    /// Nothing was read yet.
    Nothing,
    /// It comes next.
    Batch(Result<B>),
    /// The last batch was handed out.
    End,
}

impl<D, C> DataLoaderShardIter<'_, D, C>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    fn read(&mut self) -> Option<Result<C::Batch>> {
        self.batches
            .as_mut()?
            .next()
            .map(|batch| self.shard.place(batch))
    }

    fn finish(&mut self, complete: bool) {
        self.batches = None;
        if self.scope.take().is_some() && complete {
            self.shard.iteration.set(self.shard.iteration.get() + 1);
        }
    }
}

impl<D, C> Iterator for DataLoaderShardIter<'_, D, C>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    type Item = Result<C::Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failed.take() {
            self.finish(false);
            return Some(Err(error));
        }
        let current = match std::mem::replace(&mut self.ahead, Ahead::End) {
            Ahead::Batch(batch) => Some(batch),
            Ahead::Nothing => self.read(),
            Ahead::End => {
                self.finish(true);
                return None;
            }
        };
        let Some(current) = current else {
            self.finish(false);
            return None;
        };
        match self.read() {
            Some(next) => self.ahead = Ahead::Batch(next),
            None => {
                if let Some(scope) = &self.scope {
                    scope.reach_end();
                }
            }
        }
        Some(current)
    }
}

impl<D: Dataset, C: Collate<D::Item>> fmt::Debug for DataLoaderShardIter<'_, D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoaderShardIter")
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
