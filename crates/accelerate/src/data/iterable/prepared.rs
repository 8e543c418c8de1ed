use std::cell::{Cell, RefCell};
use std::fmt;
use std::num::NonZeroUsize;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use accelerate_torch::ProcessGroup;

use super::IterableDataset;
use super::batcher::{ShortBatch, StreamSource};
use super::dataset_shard::IterableLayout;
use super::loader::{IterableDataLoader, Start};
use super::position::{RunningStream, StreamPosition};
use super::prepared_iter::{Begun, IterableDataLoaderShardIter};
use super::rank_stream::RankStream;
use super::turns::Turns;
use crate::data::collate::Collate;
use crate::data::loader_control::LoaderControl;
use crate::data::loader_state::{DataLoaderState, LoaderShape, with_global};
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
///
/// Every loop can be stopped and taken up again ([`state_dict`](Self::state_dict)).
pub struct IterableDataLoaderShard<D, C = Stack> {
    pub(super) position: Rc<StreamPosition<D, C>>,
    pub(super) options: ShardOptions,
    /// Set where the parts of ranks are to be kept even.
    pub(super) lock_step: Option<ProcessGroup>,
    total_batch_size: usize,
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
        let ranks = options.num_processes.get();
        let layout = IterableLayout {
            batch_size,
            drop_last: loader.drop_last(),
            num_processes: options.num_processes,
            process_index: options.process_index,
            split_batches: options.split_batches,
        };
        let shape = LoaderShape {
            samples: loader.dataset().known_len(),
            batch_size: Some(batch_size.get()),
            batches: 0,
        };
        let loader = for_rank(loader, layout, options.even_batches)?;
        let own_part = matches!(loader.dataset(), RankStream::Part { .. });
        let batches_per_step = if options.split_batches { 1 } else { ranks };
        Ok(Self {
            total_batch_size: batch_size.get() * batches_per_step,
            lock_step: group.filter(|_| own_part && options.even_batches).cloned(),
            position: Rc::new(StreamPosition {
                loader,
                shape,
                batches_per_step,
                own_part_of: own_part.then_some(ranks),
                epoch: Cell::new(0),
                running: RefCell::default(),
                loaded: RefCell::default(),
            }),
            options,
        })
    }

    pub(super) fn loader(&self) -> &IterableDataLoader<RankStream<D>, C> {
        &self.position.loader
    }

    /// Where the loop over this loader stands: how many batches it was handed out.
    ///
    /// A loop that was left early stands where it was left until the next one begins.
    ///
    /// ```
    /// use accelerate::data::{FnIterableDataset, IterableDataLoader, IterableDataLoaderShard};
    ///
    /// let loader = |workers| -> accelerate::Result<_> {
    ///     let numbers = FnIterableDataset::new(|| (0..8i64).map(Ok));
    ///     let loader = IterableDataLoader::builder(numbers).num_workers(workers).build()?;
    ///     IterableDataLoaderShard::new(loader, Default::default(), None)
    /// };
    /// let (before, after) = (loader(0)?, loader(2)?);
    /// let mut batches = before.iter();
    /// batches.next();
    /// after.load_state_dict(&before.state_dict()?)?;
    /// for (rest, resumed) in batches.zip(&after) {
    ///     assert_eq!(rest?, resumed?);
    /// }
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of reading generators.
    pub fn state_dict(&self) -> Result<DataLoaderState> {
        self.position.state_dict()
    }

    /// Makes the next loop go on with the batch behind those that `state` counts.
    ///
    /// Exact for streams that give the same samples in the same epoch again. The number of
    /// workers may be another one: the rest of the epoch is read in as many parts as it was
    /// begun in. Ranks that share a stream may be others in number too, as long as they share
    /// the batches that were handed out evenly; a rank that reads a part of its own needs its
    /// own state. What was seen is read again and dropped, unless the data set can jump
    /// ([`IterableDataset::shard_after`]).
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// [`Error::StateMismatch`] if the state is of another loader, or of ranks that shared the
    /// stream in another way.
    pub fn load_state_dict(&self, state: &DataLoaderState) -> Result<()> {
        self.position.load_state_dict(state)
    }

    /// The number of batches in one epoch on this rank, where it is known beforehand.
    pub fn known_len(&self) -> Option<usize> {
        self.loader().known_len()
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
        self.loader().dataset().dataset()
    }

    /// The number of samples in a batch of this rank.
    pub fn batch_size(&self) -> NonZeroUsize {
        self.loader().batch_size()
    }

    /// Whether a last batch with fewer samples is left out.
    pub fn drop_last(&self) -> bool {
        self.loader().drop_last()
    }

    /// The epoch that comes next: how many were gone through to their end, or what was set.
    pub fn iteration(&self) -> u64 {
        self.position.epoch.get()
    }

    /// Sets the epoch that comes next.
    ///
    /// If it is another one than that of a state that was loaded, it begins afresh.
    pub fn set_epoch(&self, epoch: u64) {
        self.position.set_epoch(epoch);
    }

    /// Where a loop would stand that begins now.
    pub(in crate::data) fn beginning(&self) -> Result<DataLoaderState> {
        Ok(DataLoaderState {
            epoch: self.position.epoch.get(),
            in_epoch: true,
            batches: 0,
            shape: self.position.shape,
            generators: self.position.generators(true)?,
            stream: Some(self.position.fresh(self.loader().readers()).progress),
        })
    }

    /// Draws what starting an epoch draws, without reading.
    pub(in crate::data) fn draw_base_seed(&self) -> Result<()> {
        let loaded = self.position.loaded.take();
        if let Some(state) = &loaded {
            self.position.restore(&state.generators)?;
        }
        let resumed = loaded.as_ref().filter(|state| state.in_epoch);
        let global = resumed.and_then(|state| state.generators.global.as_ref());
        with_global(global, || self.loader().base_seed())??;
        Ok(())
    }

    fn synchronize_generator(&self) -> Result<()> {
        match (&self.options.sync_generator, self.dataset().generator()) {
            (Some(sync), Some(generator)) => sync(generator),
            _ => Ok(()),
        }
    }

    /// What the last batch holds beside repetitions; called at the end of an epoch.
    pub(super) fn remainder(&self) -> Option<usize> {
        match self.loader().dataset() {
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
    if let Some(bunk) = &loader.workers.bunk {
        // Workers of the loader as it was hold on to its stream.
        drop(bunk.borrow_mut().take());
    }
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
        workers: loader.workers,
        generator: loader.generator,
    })
}

impl<D, C> IterableDataLoaderShard<D, C>
where
    D: IterableDataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    /// Starts an epoch, or goes on with the one of a state that was loaded.
    ///
    /// A failure to start is the first item.
    pub fn iter(&self) -> IterableDataLoaderShardIter<'_, D, C> {
        IterableDataLoaderShardIter::new(self, self.begin())
    }

    fn begin(&self) -> Result<Begun<'_, D, C>> {
        let (position, loader) = (&self.position, self.loader());
        let loaded = position.loaded.borrow().clone();
        if let Some(state) = &loaded {
            position.restore(&state.generators)?;
        }
        let resumed = loaded.filter(|state| state.in_epoch);
        self.synchronize_generator()?;
        loader.set_epoch(position.epoch.get());
        let (handed_out, drawn_from) = match &resumed {
            Some(state) => (position.resumed(state), state.generators.clone()),
            None => (position.fresh(loader.readers()), position.generators(true)?),
        };
        let global = drawn_from.global.as_ref().filter(|_| resumed.is_some());
        let base_seed = with_global(global, || loader.base_seed())??;
        let from = |turns: &Turns| {
            loader.iter_from(Start {
                turns: Some(turns.clone()),
                base_seed: Some(base_seed),
            })
        };
        let batches = from(&handed_out.progress.read);
        let again = handed_out.progress.again.as_ref().map(from);
        let handed_out = Rc::new(RefCell::new(handed_out));
        position.loaded.replace(None);
        position.running.replace(Some(RunningStream {
            handed_out: Rc::clone(&handed_out),
            drawn_from,
        }));
        Ok(Begun {
            batches,
            again,
            base_seed,
            handed_out,
        })
    }

    /// What an accelerator keeps of this loader.
    pub(crate) fn handle(&self) -> Weak<dyn LoaderControl> {
        let position: Rc<dyn LoaderControl> = Rc::<StreamPosition<D, C>>::clone(&self.position);
        Rc::downgrade(&position)
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
            .field("loader", &self.position.loader)
            .field("options", &self.options)
            .field("lock_step", &self.lock_step.is_some())
            .field("iteration", &self.position.epoch)
            .finish_non_exhaustive()
    }
}
