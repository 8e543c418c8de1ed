use std::any::Any;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::refill::Refill;
use super::{IterableDataset, Samples};
use crate::data::collate::Collate;
use crate::data::worker::text_of;
use crate::{Error, Result};

/// What becomes of a batch that the end of the stream leaves short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShortBatch {
    Keep,
    Drop,
    /// It is filled up with samples from the start.
    FillUp,
}

/// Where samples come from, and how they become batches.
#[derive(Debug)]
pub(super) struct StreamSource<D, C> {
    pub(super) dataset: D,
    pub(super) collate: C,
    pub(super) batch_size: NonZeroUsize,
    pub(super) short: ShortBatch,
}

/// Who looks on while a stream is read.
pub(super) trait Watch {
    /// Whether nobody waits for the samples any more.
    fn is_cancelled(&self) -> bool;
    /// Sample `number` of the part is read next.
    fn reads(&self, number: usize);
    /// A batch is made of the samples that were read.
    fn collates(&self);
}

/// The caller itself reads.
struct Unwatched;

impl Watch for Unwatched {
    fn is_cancelled(&self) -> bool {
        false
    }

    fn reads(&self, _number: usize) {}

    fn collates(&self) {}
}

/// The batches of one epoch, of all of a stream or of one part.
pub(super) struct Batcher<'a, D: IterableDataset, C> {
    source: &'a StreamSource<D, C>,
    part: Part,
    samples: Option<Samples<'a, D::Item>>,
    /// The number of samples read so far.
    read: usize,
    /// Whether the samples of a batch were read and it is being made.
    collating: bool,
}

/// A part of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) num: usize,
    pub(super) index: usize,
}

impl<'a, D: IterableDataset, C: Collate<D::Item>> Batcher<'a, D, C> {
    /// The batches of a part behind its first `passed_over`, whose samples are not used.
    pub(super) fn start(source: &'a StreamSource<D, C>, part: Part, passed_over: usize) -> Self {
        let read = passed_over.saturating_mul(source.batch_size.get());
        Self {
            source,
            part,
            samples: Some(Box::new(Opening {
                source,
                part,
                passed_over: read,
                samples: None,
            })),
            read,
            collating: false,
        }
    }

    /// As `next`, with panics as errors; `None` at the end, and once `stop` says so.
    pub(super) fn next_guarded(&mut self, watch: &dyn Watch) -> Option<Result<C::Batch>> {
        let batch = catch_unwind(AssertUnwindSafe(|| self.read_and_collate(watch)));
        batch.unwrap_or_else(|panic| Some(Err(self.panicked(panic))))
    }

    fn panicked(&mut self, panic: Box<dyn Any + Send>) -> Error {
        self.samples = None;
        let message = text_of(panic);
        if self.collating {
            Error::CollatePanicked {
                indices: self.last_indices(self.source.batch_size.get()),
                message,
            }
        } else {
            Error::SamplePanicked {
                index: self.read,
                message,
            }
        }
    }

    /// The last samples read, by their place in this part of the stream.
    fn last_indices(&self, count: usize) -> Vec<usize> {
        (self.read.saturating_sub(count)..self.read).collect()
    }

    fn read_and_collate(&mut self, watch: &dyn Watch) -> Option<Result<C::Batch>> {
        self.collating = false;
        let items = match self.read_items(watch) {
            Ok(items) => items?,
            Err(error) => {
                self.samples = None;
                return Some(Err(error));
            }
        };
        self.collating = true;
        watch.collates();
        let count = items.len();
        let batch = self.source.collate.collate(items);
        Some(batch.map_err(|error| {
            self.samples = None;
            Error::Collate {
                indices: self.last_indices(count),
                source: Box::new(error),
            }
        }))
    }

    /// The samples of the next batch; `None` if there is none.
    fn read_items(&mut self, watch: &dyn Watch) -> Result<Option<Vec<D::Item>>> {
        let size = self.source.batch_size.get();
        let mut items = Vec::with_capacity(size);
        while items.len() < size {
            if watch.is_cancelled() {
                return Ok(None);
            }
            watch.reads(self.read);
            let Some(sample) = self.samples.as_mut().and_then(Iterator::next) else {
                // What has ended is not asked again.
                self.samples = None;
                break;
            };
            items.push(sample.map_err(|error| sample_error(self.read, error))?);
            self.read += 1;
        }
        if items.is_empty() {
            return Ok(None);
        }
        if items.len() < size {
            match self.source.short {
                ShortBatch::Keep => {}
                ShortBatch::Drop => return Ok(None),
                ShortBatch::FillUp => self.fill_up(&mut items)?,
            }
        }
        Ok(Some(items))
    }

    fn fill_up(&self, items: &mut Vec<D::Item>) -> Result<()> {
        let (source, part) = (self.source, self.part);
        let missing = source.batch_size.get() - items.len();
        for (index, sample) in Refill::new(|| open(source, part)).take(missing).enumerate() {
            items.push(sample.map_err(|error| sample_error(index, error))?);
        }
        Ok(())
    }
}

impl<D: IterableDataset, C: Collate<D::Item>> Iterator for Batcher<'_, D, C> {
    type Item = Result<C::Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_and_collate(&Unwatched)
    }
}

fn open<D: IterableDataset, C>(source: &StreamSource<D, C>, part: Part) -> Samples<'_, D::Item> {
    if part.num == 1 {
        source.dataset.epoch()
    } else {
        source.dataset.shard(part.num, part.index)
    }
}

fn sample_error(index: usize, error: Error) -> Error {
    Error::Sample {
        index,
        source: Box::new(error),
    }
}

/// A stream that is opened when its first sample is asked for, where panics are caught.
struct Opening<'a, D: IterableDataset, C> {
    source: &'a StreamSource<D, C>,
    part: Part,
    /// How many samples are left out.
    passed_over: usize,
    samples: Option<Samples<'a, D::Item>>,
}

impl<D: IterableDataset, C> Iterator for Opening<'_, D, C> {
    type Item = Result<D::Item>;

    fn next(&mut self) -> Option<Self::Item> {
        let (source, Part { num, index }) = (self.source, self.part);
        self.samples
            .get_or_insert_with(|| match self.passed_over {
                0 => open(source, self.part),
                samples => source.dataset.shard_after(num, index, samples),
            })
            .next()
    }
}
