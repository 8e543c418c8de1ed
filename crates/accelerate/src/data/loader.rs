use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use accelerate_torch::Generator;

use super::batch_sampler::{BatchIndices, IndexBatches};
use super::builder::DataLoaderBuilder;
use super::collate::Collate;
use super::dataset::Dataset;
use super::stack::Stack;
use super::worker::{Source, WorkerOptions, WorkerPool};
use crate::{Error, Result};

/// Batches of a data set, read in the caller's thread or in worker threads.
///
/// Each `for batch in &loader` is one epoch. Batches come in the order of the
/// sampler whatever the number of workers; at most `num_workers` times
/// `prefetch_factor` of them are made ahead. Leaving the loop early ends the
/// workers, or lets them wait for the next one where they are to stay.
///
/// ```
/// use accelerate::data::DataLoader;
///
/// let loader = DataLoader::builder(vec![1i64, 2, 3]).batch_size(2).build()?;
/// let batches = loader.iter().map(|b| Ok(Vec::<i64>::try_from(&b?)?));
/// assert_eq!(batches.collect::<accelerate::Result<Vec<_>>>()?, [vec![1, 2], vec![3]]);
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Source
/// `torch.utils.data.DataLoader`: the same draws from the same generators.
/// Differs: workers are threads, so nothing is copied between processes; workers that
/// stay get a new seed in each epoch, so that no draw depends on whether they do.
pub struct DataLoader<D, C = Stack> {
    pub(super) source: Arc<Source<D, C>>,
    pub(super) batches: Box<dyn IndexBatches>,
    pub(super) workers: WorkerOptions,
    pub(super) generator: Option<Arc<Generator>>,
}

impl<D: Dataset> DataLoader<D, Stack> {
    /// Settings for a loader over `dataset`, which collates with [`Stack`] until told otherwise.
    pub fn builder(dataset: D) -> DataLoaderBuilder<D, Stack> {
        DataLoaderBuilder::new(dataset)
    }
}

impl<D: Dataset, C: Collate<D::Item>> DataLoader<D, C> {
    /// The number of batches in one epoch.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// Whether an epoch has no batch, as with `drop_last` and too few samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The data set.
    pub fn dataset(&self) -> &D {
        &self.source.dataset
    }

    /// The batches of indices that are asked for.
    pub fn batch_sampler(&self) -> &dyn IndexBatches {
        self.batches.as_ref()
    }

    /// Tells the sampler which epoch comes next.
    pub fn set_epoch(&self, epoch: u64) {
        self.batches.set_epoch(epoch);
    }
}

impl<D, C> DataLoader<D, C>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    /// Starts an epoch.
    ///
    /// A failure to start, as of a worker thread, is the first item.
    pub fn iter(&self) -> DataLoaderIter<'_, D, C> {
        self.iter_from(Start::default())
    }

    /// Starts an epoch at a place of one's choice.
    pub(super) fn iter_from(&self, start: Start) -> DataLoaderIter<'_, D, C> {
        let drawn = start.notes_indices.then(Drawn::default);
        let reader = self
            .reader(start, drawn.clone())
            .unwrap_or_else(|error| Reader::Failed(Some(error)));
        DataLoaderIter { reader, drawn }
    }

    fn reader(&self, start: Start, drawn: Option<Drawn>) -> Result<Reader<'_, D, C>> {
        let base_seed = self.base_seed()?;
        let mut batches = self.batches.epoch_after(start.passed_over);
        if let Some(drawn) = drawn {
            batches = Box::new(batches.inspect(move |batch| {
                if let Ok(indices) = batch {
                    drawn.borrow_mut().push_back(indices.clone());
                }
            }));
        }
        if start.draw_now {
            let first = batches.next();
            batches = Box::new(first.into_iter().chain(batches).fuse());
        }
        if self.workers.num_workers == 0 {
            return Ok(Reader::Here {
                source: &self.source,
                batches,
            });
        }
        // More workers than batches would have nothing to do.
        let workers = self.workers.num_workers.min(self.len()).max(1);
        WorkerPool::start(
            &self.source,
            batches,
            workers,
            &self.workers,
            base_seed,
            start.number,
        )
        .map(Reader::Workers)
    }

    /// Draws the number that seeds the workers; drawn without workers too, so
    /// that the orders that follow do not depend on how many there are.
    pub(super) fn base_seed(&self) -> Result<u64> {
        let drawn = match &self.generator {
            Some(own) => own.random_i64()?,
            None => Generator::default_cpu()?.random_i64()?,
        };
        Ok(drawn.cast_unsigned())
    }
}

impl<'a, D, C> IntoIterator for &'a DataLoader<D, C>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    type Item = Result<C::Batch>;
    type IntoIter = DataLoaderIter<'a, D, C>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<D, C> fmt::Debug for DataLoader<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoader")
            .field("len", &self.batches.len())
            .field("batch_size", &self.batches.batch_size())
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

/// Where in an epoch a loop starts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Start {
    /// How many batches are passed over, see [`IndexBatches::epoch_after`].
    pub(super) passed_over: usize,
    /// The number of the first batch on this rank.
    pub(super) number: usize,
    /// Whether the first batch of indices, and so the seed of the order, is drawn at once.
    pub(super) draw_now: bool,
    /// Whether the loop can say which samples a batch has.
    pub(super) notes_indices: bool,
}

/// The batches of indices that were drawn and not asked for yet, in order.
type Drawn = Rc<RefCell<VecDeque<Vec<usize>>>>;

/// The batches of one epoch of a [`DataLoader`].
pub struct DataLoaderIter<'a, D: Dataset, C: Collate<D::Item>>
where
    C::Batch: 'static,
{
    reader: Reader<'a, D, C>,
    drawn: Option<Drawn>,
}

impl<D: Dataset, C: Collate<D::Item>> DataLoaderIter<'_, D, C>
where
    C::Batch: 'static,
{
    /// The samples of the next batch whose samples were not asked for yet, if they are noted.
    pub(super) fn next_indices(&self) -> Option<Vec<usize>> {
        self.drawn.as_ref()?.borrow_mut().pop_front()
    }
}

enum Reader<'a, D: Dataset, C: Collate<D::Item>>
where
    C::Batch: 'static,
{
    Failed(Option<Error>),
    Here {
        source: &'a Source<D, C>,
        batches: BatchIndices<'a>,
    },
    Workers(WorkerPool<'a, C::Batch>),
}

impl<D, C> Iterator for DataLoaderIter<'_, D, C>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    type Item = Result<C::Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.reader {
            Reader::Failed(error) => error.take().map(Err),
            Reader::Here { source, batches } => {
                batches.next().map(|indices| source.fetch(&indices?))
            }
            Reader::Workers(pool) => pool.next(),
        }
    }
}

impl<D: Dataset, C: Collate<D::Item>> fmt::Debug for DataLoaderIter<'_, D, C>
where
    C::Batch: 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoaderIter").finish_non_exhaustive()
    }
}
