//! Loaders that only rank 0 reads: it deals every batch out to all ranks.

mod channel;
mod position;
mod prepared;
mod reader;
mod source;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};

use accelerate_torch::ProcessGroup;
use tch::{Device, Tensor};

use crate::data::loader_control::LoaderControl;
use crate::data::loader_state::DataLoaderState;
use crate::data::progress::LoaderScope;
use crate::data::shard_options::ShardOptions;
use crate::tree::{Parcel, Tree};
use crate::{Error, Result};

use channel::{Channel, Delivery, Step};
use position::{DispatchPosition, RunningDispatch};
use reader::Reader;

pub use prepared::{
    PreparedDataLoader, PreparedIterableDataLoader, PreparedLoader, PreparedLoaderIter,
};
pub use source::{BatchSource, Batches};

/// A loader that rank 0 reads for all ranks.
///
/// In each step rank 0 takes one batch for every rank (with `split_batches`: one for all)
/// and sends each rank its part: first what the batch is made of, then the tensors. A last
/// step that does not divide by the number of ranks is filled up with the first samples of
/// the first step, so that all ranks get equally many; it may be smaller than a full one.
/// Texts and other values that are no tensors travel too: lists with one value for each
/// sample are dealt out like rows, anything else has to be the same in every batch.
///
/// An error of rank 0 ends the loop on every rank, and a rank that is at another step than
/// rank 0 gets [`Error::OutOfStep`].
///
/// # Collective
/// Every step is one: every rank starts and leaves the loop at the same step.
///
/// # Source
/// `accelerate.data_loader.DataLoaderDispatcher`. Differs: a rank is sent its own part only;
/// errors on rank 0 reach all ranks; batches may hold texts; steps, not batches, are skipped;
/// where the first step has fewer samples than ranks they are repeated until each rank has one.
///
/// Every loop can be stopped and taken up again ([`state_dict`](Self::state_dict)).
pub struct DataLoaderDispatcher<S> {
    position: Rc<DispatchPosition<S>>,
    options: ShardOptions,
    group: Option<ProcessGroup>,
    /// How many loops were started.
    started: Cell<u64>,
}

impl<S: BatchSource> DataLoaderDispatcher<S> {
    /// Deals out what `source` gives on rank 0, through `group`.
    ///
    /// `source` is prepared for one rank. Without a group there is one rank.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are several ranks and no group, or if batches are to be
    /// split but their size varies or is no multiple of the number of ranks.
    pub fn new(source: S, options: ShardOptions, group: Option<ProcessGroup>) -> Result<Self> {
        let ranks = options.num_processes.get();
        let members = group.as_ref().map_or(1, ProcessGroup::size);
        let wrong = |expected: String, found: String| {
            Err(Error::Argument {
                operation: "DataLoaderDispatcher::new",
                expected,
                found,
            })
        };
        if members != ranks {
            return wrong(format!("a group of {ranks} ranks"), format!("{members}"));
        }
        match source.batch_size() {
            None if options.split_batches => wrong(
                "a fixed batch size to split batches".to_owned(),
                "batches whose size varies; turn `split_batches` off".to_owned(),
            ),
            Some(size) if options.split_batches && !size.get().is_multiple_of(ranks) => wrong(
                format!("a batch size that is a multiple of {ranks} to split batches"),
                format!("{size}; choose another size or turn `split_batches` off"),
            ),
            _ => Ok(Self {
                position: Rc::new(DispatchPosition {
                    source,
                    batches_per_step: if options.split_batches { 1 } else { ranks },
                    epoch: Cell::new(0),
                    running: RefCell::default(),
                    loaded: RefCell::default(),
                }),
                options,
                group,
                started: Cell::new(0),
            }),
        }
    }

    /// Where the loop over this loader stands: how many batches were handed out.
    ///
    /// The same on every rank.
    ///
    /// # Errors
    /// Those of reading generators.
    pub fn state_dict(&self) -> Result<DataLoaderState> {
        self.position.state_dict()
    }

    /// Makes the next loop go on with the step behind those that `state` counts.
    ///
    /// The number of workers, and that of ranks, may be another one. Samples of an index that
    /// were seen are not read again, but for those of the first step, with which a last one is
    /// filled up.
    ///
    /// # Collective
    /// Every rank calls this, with the same state.
    ///
    /// # Errors
    /// [`Error::StateMismatch`] if the state is of another loader.
    pub fn load_state_dict(&self, state: &DataLoaderState) -> Result<()> {
        self.position.load_state_dict(state)
    }

    /// What an accelerator keeps of this loader.
    pub(crate) fn handle(&self) -> Weak<dyn LoaderControl>
    where
        S: 'static,
    {
        let position: Rc<dyn LoaderControl> = Rc::<DispatchPosition<S>>::clone(&self.position);
        Rc::downgrade(&position)
    }

    /// The loader that rank 0 reads.
    pub fn source(&self) -> &S {
        &self.position.source
    }

    /// The number of steps in one epoch, where it is known beforehand.
    pub fn known_len(&self) -> Option<usize> {
        let batches = self.source().known_len()?;
        let ranks = self.options.num_processes.get();
        Some(if self.options.split_batches {
            batches
        } else if self.source().drop_last() {
            batches / ranks
        } else {
            batches.div_ceil(ranks)
        })
    }

    /// The number of samples in one step of all ranks together; `None` if it varies.
    pub fn total_batch_size(&self) -> Option<usize> {
        let size = self.source().batch_size()?.get();
        Some(if self.options.split_batches {
            size
        } else {
            size * self.options.num_processes.get()
        })
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

    /// Starts an epoch, or goes on with the one of a state that was loaded.
    ///
    /// A failure to start is the first item.
    pub fn iter(&self) -> DataLoaderDispatcherIter<'_, S> {
        self.iter_from(0)
    }

    /// Starts an epoch behind the next `steps` steps, which are read on rank 0 and not sent.
    pub fn iter_from(&self, steps: u64) -> DataLoaderDispatcherIter<'_, S> {
        let number = self.started.get();
        self.started.set(number + 1);
        let handed_out = Rc::new(Cell::new(0));
        let (failed, reader) = match self.begin(steps, &handed_out) {
            Ok(reader) => (None, reader),
            Err(error) => (Some(error), None),
        };
        let done = handed_out.get() / self.position.batches_per_step;
        DataLoaderDispatcherIter {
            dispatcher: self,
            reader,
            failed,
            channel: Channel::new(
                self.group.as_ref(),
                self.options.device,
                number,
                done as u64,
            ),
            begun_within: done > 0,
            handed_out,
            scope: Some(self.options.progress.begin(None)),
            at_end: false,
        }
    }

    /// What rank 0 reads from, from `handed_out` on, which is set; the others only draw what
    /// starting an epoch draws.
    fn begin(
        &self,
        steps: u64,
        handed_out: &Rc<Cell<usize>>,
    ) -> Result<Option<Reader<'_, S::Batch>>> {
        let (position, source) = (&self.position, self.source());
        let loaded = position.loaded.borrow().clone();
        source.set_epoch(position.epoch.get());
        let resumed = loaded.as_ref().filter(|state| state.in_epoch);
        let begun = match (&loaded, resumed) {
            (_, Some(state)) => state.at_batch(0),
            (Some(state), None) => {
                source.load_state(state)?;
                state.begun()?
            }
            (None, None) => source.beginning()?,
        };
        let done = resumed.map_or(0, |state| state.batches);
        let steps = usize::try_from(steps).unwrap_or(usize::MAX);
        handed_out.set(done.saturating_add(steps.saturating_mul(position.batches_per_step)));
        let reader = match (self.options.process_index, resumed) {
            (0, None) => {
                let mut reader = self.reader(source.epoch(), None);
                reader.skip(steps as u64);
                Some(reader)
            }
            (0, Some(state)) => {
                let first = self.first_step_of(state)?;
                source.load_state(state)?;
                let mut reader = self.reader(source.epoch(), first);
                reader.skip(steps as u64);
                Some(reader)
            }
            (_, resumed) => {
                if let Some(state) = resumed {
                    source.load_state(state)?;
                }
                source.draw_start()?;
                None
            }
        };
        position.loaded.replace(None);
        position.running.replace(Some(RunningDispatch {
            begun,
            batches: Rc::clone(handed_out),
        }));
        Ok(reader)
    }

    fn reader<'a>(
        &self,
        batches: Batches<'a, S::Batch>,
        first: Option<Parcel>,
    ) -> Reader<'a, S::Batch> {
        let take = self.position.batches_per_step;
        let ranks = self.options.num_processes;
        Reader::new(batches, take, ranks, self.source().drop_last(), first)
    }

    /// The samples with which the last step of a resumed epoch is filled up.
    fn first_step_of(&self, state: &DataLoaderState) -> Result<Option<Parcel>> {
        if state.batches == 0 || self.source().drop_last() {
            return Ok(None);
        }
        self.source().load_state(&state.at_batch(0))?;
        self.reader(self.source().epoch(), None).first_samples()
    }
}

impl<'a, S: BatchSource> IntoIterator for &'a DataLoaderDispatcher<S> {
    type Item = Result<S::Batch>;
    type IntoIter = DataLoaderDispatcherIter<'a, S>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<S: fmt::Debug> fmt::Debug for DataLoaderDispatcher<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoaderDispatcher")
            .field("source", &self.position.source)
            .field("options", &self.options)
            .field("iteration", &self.position.epoch)
            .finish_non_exhaustive()
    }
}

/// The batches of one epoch of a [`DataLoaderDispatcher`].
pub struct DataLoaderDispatcherIter<'a, S: BatchSource> {
    dispatcher: &'a DataLoaderDispatcher<S>,
    /// On rank 0.
    reader: Option<Reader<'a, S::Batch>>,
    failed: Option<Error>,
    channel: Channel<'a>,
    /// Whether the loop began behind the epoch's first step.
    begun_within: bool,
    /// How far the epoch has come, in batches of the source.
    handed_out: Rc<Cell<usize>>,
    scope: Option<LoaderScope>,
    at_end: bool,
}

impl<S: BatchSource> DataLoaderDispatcherIter<'_, S> {
    fn step(&mut self) -> Result<Option<S::Batch>> {
        let options = &self.dispatcher.options;
        let delivery = match &mut self.reader {
            Some(reader) => {
                let step = reader.next_step().and_then(|mut step| {
                    if let Some(Step { samples, .. }) = &mut step {
                        place_leaves(samples.tensors_mut(), options.device, options.non_blocking)?;
                    }
                    Ok(step)
                });
                self.channel.send(step, options.num_processes)?
            }
            None => self.channel.receive()?,
        };
        let Some(Delivery {
            mut own,
            last,
            observed,
        }) = delivery
        else {
            return Ok(None);
        };
        let batch = S::Batch::unpack(&mut own)?;
        if let (true, Some(scope)) = (last, &self.scope) {
            self.at_end = true;
            scope.set_remainder(Some(observed));
            scope.reach_end();
        }
        place(batch, options.device, options.non_blocking).map(Some)
    }

    fn finish(&mut self, complete: bool) {
        self.reader = None;
        if self.scope.take().is_none() {
            return;
        }
        let position = &self.dispatcher.position;
        let is_own = |running: &RunningDispatch| Rc::ptr_eq(&running.batches, &self.handed_out);
        if position.running.borrow().as_ref().is_some_and(is_own) {
            position.running.replace(None);
        }
        if complete {
            position.epoch.set(position.epoch.get() + 1);
        }
    }
}

impl<S: BatchSource> Iterator for DataLoaderDispatcherIter<'_, S> {
    type Item = Result<S::Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.scope.as_ref()?;
        let _waiting = self.dispatcher.options.progress.steps().wait_for_data();
        if self.at_end {
            self.finish(true);
            return None;
        }
        let step = match self.failed.take() {
            Some(error) => Err(error),
            None => self.step(),
        };
        match step {
            Ok(Some(batch)) => {
                let per_step = self.dispatcher.position.batches_per_step;
                self.handed_out.set(self.handed_out.get() + per_step);
                let epoch = self.dispatcher.position.epoch.get();
                self.scope.iter().for_each(|scope| scope.count(&batch));
                let recorded = match &self.scope {
                    Some(scope) => scope.record(&batch, epoch, None),
                    None => Ok(()),
                };
                Some(recorded.map(|()| batch))
            }
            Ok(None) => {
                // Without a step left: it was handed out before.
                self.finish(self.begun_within);
                None
            }
            Err(error) => {
                self.finish(false);
                Some(Err(self.dispatcher.options.explained(error)))
            }
        }
    }
}

impl<S: BatchSource> fmt::Debug for DataLoaderDispatcherIter<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoaderDispatcherIter")
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// Moves a batch to a device; `None` leaves it where it is.
pub(super) fn place<B: Tree>(
    mut batch: B,
    device: Option<Device>,
    non_blocking: bool,
) -> Result<B> {
    batch.visit_mut(&mut |leaf| place_leaves(std::iter::once(leaf), device, non_blocking))?;
    Ok(batch)
}

fn place_leaves<'t>(
    leaves: impl Iterator<Item = &'t mut Tensor>,
    device: Option<Device>,
    non_blocking: bool,
) -> Result<()> {
    let Some(device) = device else {
        return Ok(());
    };
    for leaf in leaves {
        if leaf.device() != device {
            let kind = leaf.f_kind()?;
            *leaf = leaf.f_to_device_(device, kind, non_blocking, false)?;
        }
    }
    Ok(())
}
