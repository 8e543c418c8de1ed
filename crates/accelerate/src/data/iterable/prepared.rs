use std::cell::{Cell, RefCell};
use std::fmt;
use std::num::NonZeroUsize;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use accelerate_torch::ProcessGroup;

use super::IterableDataset;
use super::batcher::{ShortBatch, StreamSource};
use super::dataset_shard::IterableLayout;
use super::loader::{IterableDataLoader, IterableDataLoaderIter, Start};
use super::lock_step::{Step, Turn, agree};
use super::position::{HandedOut, RunningStream, StreamPosition};
use super::rank_stream::RankStream;
use super::turns::Turns;
use crate::data::collate::Collate;
use crate::data::dispatcher::place;
use crate::data::loader_control::LoaderControl;
use crate::data::loader_state::{DataLoaderState, LoaderShape, with_global};
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
///
/// Every loop can be stopped and taken up again ([`state_dict`](Self::state_dict)).
pub struct IterableDataLoaderShard<D, C = Stack> {
    position: Rc<StreamPosition<D, C>>,
    options: ShardOptions,
    /// Set where the parts of ranks are to be kept even.
    lock_step: Option<ProcessGroup>,
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

    fn loader(&self) -> &IterableDataLoader<RankStream<D>, C> {
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
    fn remainder(&self) -> Option<usize> {
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
        let (ahead, begun) = match self.begin() {
            Ok(begun) => (Ahead::Nothing, Some(begun)),
            Err(error) => (Ahead::Failed(error), None),
        };
        let handed_out = begun.as_ref().map(|begun| Rc::clone(&begun.handed_out));
        let begun_within = handed_out
            .as_ref()
            .is_some_and(|out| out.borrow().steps > 0);
        let (batches, again, base_seed) = begun.map_or((None, None, 0), |begun| {
            (Some(begun.batches), begun.again, begun.base_seed)
        });
        IterableDataLoaderShardIter {
            shard: self,
            batches,
            again,
            base_seed,
            read_any: begun_within,
            begun_within,
            handed_out,
            ahead,
            scope: Some(self.options.progress.begin(None)),
        }
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

/// A loop that has begun.
struct Begun<'a, D: IterableDataset, C: Collate<D::Item>>
where
    C::Batch: 'static,
{
    batches: IterableDataLoaderIter<'a, RankStream<D>, C>,
    again: Option<IterableDataLoaderIter<'a, RankStream<D>, C>>,
    base_seed: u64,
    handed_out: Rc<RefCell<HandedOut>>,
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

/// The batches of one epoch of an [`IterableDataLoaderShard`].
pub struct IterableDataLoaderShardIter<'a, D: IterableDataset, C: Collate<D::Item>>
where
    C::Batch: 'static,
{
    shard: &'a IterableDataLoaderShard<D, C>,
    /// This rank's batches; `None` once they have ended.
    batches: Option<IterableDataLoaderIter<'a, RankStream<D>, C>>,
    /// The same batches again, for a rank that is through while others are not.
    again: Option<IterableDataLoaderIter<'a, RankStream<D>, C>>,
    /// What seeds the workers in this epoch.
    base_seed: u64,
    read_any: bool,
    /// Whether the loop began behind the epoch's first batch.
    begun_within: bool,
    handed_out: Option<Rc<RefCell<HandedOut>>>,
    ahead: Ahead<C::Batch>,
    scope: Option<LoaderScope>,
}

/// What of a rank's stream a batch is.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// It is read for the first time, of this part.
    Own(usize),
    /// It is read again, of this part; `true` where that begins.
    Again(usize, bool),
}

/// What was read ahead.
enum Ahead<B> {
    /// Nothing yet.
    Nothing,
    /// The batch that comes next.
    Batch(Origin, B),
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
    fn read(&mut self) -> Result<Option<(Origin, C::Batch)>> {
        let options = &self.shard.options;
        let read = match &self.shard.lock_step {
            None => self.read_own().transpose()?,
            Some(group) => self.read_together(group)?,
        };
        let Some((origin, batch)) = read else {
            return Ok(None);
        };
        let batch = place(batch, options.device, options.non_blocking)?;
        Ok(Some((origin, batch)))
    }

    fn read_own(&mut self) -> Option<Result<(Origin, C::Batch)>> {
        let read = self.batches.as_mut()?.next_of_part();
        match &read {
            Some(_) => self.read_any = true,
            None => self.batches = None,
        }
        read.map(|(part, batch)| Ok((Origin::Own(part), batch?)))
    }

    /// As [`read_own`](Self::read_own), at the pace of all ranks.
    fn read_together(&mut self, group: &ProcessGroup) -> Result<Option<(Origin, C::Batch)>> {
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

    fn read_again(&mut self) -> Result<(Origin, C::Batch)> {
        if let Some((part, batch)) = self
            .again
            .as_mut()
            .and_then(IterableDataLoaderIter::next_of_part)
        {
            return Ok((Origin::Again(part, false), batch?));
        }
        let parts = self.handed_out.as_ref().map_or(1, |out| {
            let out = out.borrow();
            out.progress.read.parts.len()
        });
        let mut again = self.shard.loader().iter_from(Start {
            turns: Some(Turns::begin(parts)),
            // No draw that only some ranks make.
            base_seed: Some(self.base_seed),
        });
        let batch = again.next_of_part();
        self.again = Some(again);
        let Some((part, batch)) = batch else {
            return Err(Error::Argument {
                operation: "IterableDataset::shard",
                expected: "the same samples when it is called again, for ranks whose part is \
                           shorter than others'"
                    .to_owned(),
                found: "none; turn `even_batches` off for parts that can be read only once"
                    .to_owned(),
            });
        };
        Ok((Origin::Again(part, true), batch?))
    }

    /// Counts a batch that is handed out.
    fn count_out(&self, origin: Origin) {
        let Some(handed_out) = &self.handed_out else {
            return;
        };
        let mut handed_out = handed_out.borrow_mut();
        handed_out.steps += 1;
        let progress = &mut handed_out.progress;
        match origin {
            Origin::Own(part) => progress.read.handed_out(part),
            Origin::Again(part, begins) => {
                let parts = progress.read.parts.len();
                let again = progress.again.take().filter(|_| !begins);
                let mut again = again.unwrap_or_else(|| Turns::begin(parts));
                again.handed_out(part);
                progress.again = Some(again);
            }
        }
    }

    fn read_ahead(&mut self) {
        self.ahead = match self.read() {
            Ok(Some((origin, batch))) => Ahead::Batch(origin, batch),
            Err(error) => Ahead::Failed(self.shard.options.explained(error)),
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
        if self.scope.take().is_none() {
            return;
        }
        let position = &self.shard.position;
        let is_own = position.running.borrow().as_ref().is_some_and(|running| {
            let own = self.handed_out.as_ref();
            own.is_some_and(|own| Rc::ptr_eq(&running.handed_out, own))
        });
        if is_own {
            position.running.replace(None);
        }
        if complete {
            position.epoch.set(position.epoch.get() + 1);
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
            Ahead::Batch(origin, batch) => {
                self.read_ahead();
                self.count_out(origin);
                let recorded = match &self.scope {
                    Some(scope) => scope.record(&batch, self.shard.position.epoch.get(), None),
                    None => Ok(()),
                };
                Some(recorded.map(|()| batch))
            }
            Ahead::Failed(error) => {
                self.finish(false);
                Some(Err(error))
            }
            Ahead::Nothing | Ahead::End => {
                // An epoch without a batch does not count; one whose batches were all handed out
                // before does.
                self.finish(!first || self.begun_within);
                None
            }
        }
    }
}

impl<D: IterableDataset, C: Collate<D::Item>> fmt::Debug for IterableDataLoaderShardIter<'_, D, C>
where
    C::Batch: 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterableDataLoaderShardIter")
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
