//! Loaders that only rank 0 reads: it deals every batch out to all ranks.

mod channel;
mod message;
mod prepared;
mod reader;
mod source;

use std::cell::Cell;
use std::fmt;

use accelerate_torch::ProcessGroup;
use tch::{Device, Tensor};

use crate::data::progress::LoaderScope;
use crate::data::shard_options::ShardOptions;
use crate::tree::Tree;
use crate::{Error, Result};

use channel::{Channel, Delivery, Step};
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
pub struct DataLoaderDispatcher<S> {
    source: S,
    options: ShardOptions,
    group: Option<ProcessGroup>,
    iteration: Cell<u64>,
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
                source,
                options,
                group,
                iteration: Cell::new(0),
                started: Cell::new(0),
            }),
        }
    }

    /// The loader that rank 0 reads.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The number of steps in one epoch, where it is known beforehand.
    pub fn known_len(&self) -> Option<usize> {
        let batches = self.source.known_len()?;
        let ranks = self.options.num_processes.get();
        Some(if self.options.split_batches {
            batches
        } else if self.source.drop_last() {
            batches / ranks
        } else {
            batches.div_ceil(ranks)
        })
    }

    /// The number of samples in one step of all ranks together; `None` if it varies.
    pub fn total_batch_size(&self) -> Option<usize> {
        let size = self.source.batch_size()?.get();
        Some(if self.options.split_batches {
            size
        } else {
            size * self.options.num_processes.get()
        })
    }

    /// The epoch that comes next: how many were gone through to their end, or what was set.
    pub fn iteration(&self) -> u64 {
        self.iteration.get()
    }

    /// Sets the epoch that comes next.
    pub fn set_epoch(&self, epoch: u64) {
        self.iteration.set(epoch);
        self.source.set_epoch(epoch);
    }

    /// Starts an epoch; a failure to start is the first item.
    pub fn iter(&self) -> DataLoaderDispatcherIter<'_, S> {
        self.iter_from(0)
    }

    /// Starts an epoch after its first `steps` steps, which are read on rank 0 and not sent.
    pub fn iter_from(&self, steps: u64) -> DataLoaderDispatcherIter<'_, S> {
        let number = self.started.get();
        self.started.set(number + 1);
        self.source.set_epoch(self.iteration.get());
        let (failed, reader) = match self.reader(steps) {
            Ok(reader) => (None, reader),
            Err(error) => (Some(error), None),
        };
        DataLoaderDispatcherIter {
            dispatcher: self,
            reader,
            failed,
            channel: Channel::new(self.group.as_ref(), self.options.device, number, steps),
            scope: Some(self.options.progress.begin(None)),
            at_end: false,
        }
    }

    /// What rank 0 reads from; the others only draw what starting an epoch draws.
    fn reader(&self, steps: u64) -> Result<Option<Reader<'_, S::Batch>>> {
        if self.options.process_index != 0 {
            self.source.draw_start()?;
            return Ok(None);
        }
        let ranks = self.options.num_processes;
        let drop_last = self.source.drop_last();
        let take = if self.options.split_batches {
            1
        } else {
            ranks.get()
        };
        let mut reader = Reader::new(self.source.epoch(), take, ranks, drop_last);
        reader.skip(steps);
        Ok(Some(reader))
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
            .field("source", &self.source)
            .field("options", &self.options)
            .field("iteration", &self.iteration)
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
        if self.scope.take().is_some() && complete {
            let iteration = &self.dispatcher.iteration;
            iteration.set(iteration.get() + 1);
        }
    }
}

impl<S: BatchSource> Iterator for DataLoaderDispatcherIter<'_, S> {
    type Item = Result<S::Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.scope.as_ref()?;
        if self.at_end {
            self.finish(true);
            return None;
        }
        let step = match self.failed.take() {
            Some(error) => Err(error),
            None => self.step(),
        };
        match step {
            Ok(Some(batch)) => Some(Ok(batch)),
            Ok(None) => {
                self.finish(false);
                None
            }
            Err(error) => {
                self.finish(false);
                Some(Err(error))
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
