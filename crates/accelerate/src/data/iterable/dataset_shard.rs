use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::refill::Refill;
use super::{IterableDataset, Samples};
use crate::{Error, Result};

/// How the samples of a stream are dealt out to ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IterableLayout {
    /// The number of samples in a batch: of one rank, or of all together with `split_batches`.
    pub batch_size: NonZeroUsize,
    /// Leaves out what does not fill a batch on every rank.
    pub drop_last: bool,
    /// The number of ranks.
    pub num_processes: NonZeroUsize,
    /// The rank whose part is wanted, below `num_processes`.
    pub process_index: usize,
    /// Takes `batch_size` as that of all ranks together.
    pub split_batches: bool,
}

/// The part of a stream that one rank gets, where every rank reads all of it.
///
/// Of each global batch a rank gets its own slice. The last one is filled up with samples
/// from the start, so that every rank gets equally many; for that the stream is opened a
/// second time.
///
/// # Source
/// `accelerate.data_loader.IterableDatasetShard`. Differs: it reads the start again instead
/// of keeping the first global batch, which samples that cannot be copied would not allow.
pub struct IterableDatasetShard<D> {
    dataset: D,
    layout: IterableLayout,
    epoch: AtomicU64,
    /// Left over at the end of the last epoch that was read through.
    left_over: AtomicUsize,
}

impl<D: IterableDataset> IterableDatasetShard<D> {
    /// The part of `dataset` that `layout` names.
    ///
    /// # Errors
    /// [`Error::Argument`] if the rank is not below the number of ranks, or if batches
    /// are to be split and their size is no multiple of the number of ranks.
    pub fn new(dataset: D, layout: IterableLayout) -> Result<Self> {
        let IterableLayout {
            batch_size,
            num_processes,
            process_index,
            split_batches,
            ..
        } = layout;
        let wrong = |expected: String, found: String| {
            Err(Error::Argument {
                operation: "IterableDatasetShard::new",
                expected,
                found,
            })
        };
        if process_index >= num_processes.get() {
            return wrong(
                format!("a process index below {num_processes}"),
                process_index.to_string(),
            );
        }
        if split_batches && !batch_size.get().is_multiple_of(num_processes.get()) {
            return wrong(
                format!("a batch size that is a multiple of {num_processes} to split batches"),
                format!("{batch_size}; choose another size or turn `split_batches` off"),
            );
        }
        Ok(Self {
            dataset,
            layout,
            epoch: AtomicU64::new(0),
            left_over: AtomicUsize::new(0),
        })
    }

    /// The stream, whole.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// How many samples of the last global batch were no repetition, once an epoch was read
    /// to its end; 0 if the last one was full, `None` if it was left out.
    pub(super) fn remainder(&self) -> Option<usize> {
        (!self.layout.drop_last).then(|| self.left_over.load(Ordering::Acquire))
    }

    /// The samples of a batch on one rank.
    pub(super) fn own_batch_size(&self) -> NonZeroUsize {
        let IterableLayout {
            batch_size,
            num_processes,
            split_batches,
            ..
        } = self.layout;
        if !split_batches {
            return batch_size;
        }
        NonZeroUsize::new(batch_size.get() / num_processes.get()).unwrap_or(NonZeroUsize::MIN)
    }

    /// The samples of a batch on all ranks together.
    pub(super) fn global_batch_size(&self) -> usize {
        self.own_batch_size().get() * self.layout.num_processes.get()
    }

    fn own(&self) -> Range<usize> {
        let size = self.own_batch_size().get();
        let start = size * self.layout.process_index;
        start..start + size
    }

    fn open(&self) -> Samples<'_, D::Item> {
        if let Some(generator) = self.dataset.generator()
            && let Err(error) = generator.manual_seed(self.epoch.load(Ordering::Relaxed))
        {
            return Box::new(std::iter::once(Err(error.into())));
        }
        self.dataset.epoch()
    }
}

impl<D: IterableDataset> IterableDataset for IterableDatasetShard<D> {
    type Item = D::Item;

    fn epoch(&self) -> Samples<'_, D::Item> {
        Box::new(OwnSlices {
            shard: self,
            samples: Some(self.open()),
            held: VecDeque::new(),
            ready: 0,
            position: 0,
        })
    }

    fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
        self.dataset.set_epoch(epoch);
    }

    /// The samples of this rank, repeated ones too.
    fn known_len(&self) -> Option<usize> {
        let all = self.dataset.known_len()?;
        let batches = if self.layout.drop_last {
            all / self.global_batch_size()
        } else {
            all.div_ceil(self.global_batch_size())
        };
        Some(batches * self.own_batch_size().get())
    }
}

impl<D> fmt::Debug for IterableDatasetShard<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterableDatasetShard")
            .field("layout", &self.layout)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

/// The slices of one rank, global batch by global batch.
struct OwnSlices<'a, D: IterableDataset> {
    shard: &'a IterableDatasetShard<D>,
    /// `None` once the stream has ended.
    samples: Option<Samples<'a, D::Item>>,
    /// This rank's samples that were not handed out yet.
    held: VecDeque<D::Item>,
    /// How many of them belong to global batches that are complete.
    ready: usize,
    /// The place in the current global batch.
    position: usize,
}

impl<D: IterableDataset> OwnSlices<'_, D> {
    /// Reads until a global batch is complete, or the stream ends.
    fn read_batch(&mut self) -> Result<()> {
        let (own, size) = (self.shard.own(), self.shard.global_batch_size());
        while let Some(samples) = &mut self.samples {
            let Some(sample) = samples.next() else {
                self.samples = None;
                return self.end();
            };
            let sample = sample?;
            if own.contains(&self.position) {
                self.held.push_back(sample);
            }
            self.position += 1;
            if self.position == size {
                self.position = 0;
                self.ready = self.held.len();
                return Ok(());
            }
        }
        Ok(())
    }

    /// Fills up the last global batch.
    fn end(&mut self) -> Result<()> {
        let (shard, left_over) = (self.shard, self.position);
        shard.left_over.store(left_over, Ordering::Release);
        if left_over == 0 {
            return Ok(());
        }
        if shard.layout.drop_last {
            self.held.clear();
            return Ok(());
        }
        let own = shard.own();
        // Places after what is left over take samples from the start; others' go by.
        let first = own.start.saturating_sub(left_over);
        let missing = own.end.saturating_sub(left_over.max(own.start));
        let filling = Refill::new(|| shard.open()).skip(first).take(missing);
        for sample in filling {
            self.held.push_back(sample?);
        }
        self.ready = self.held.len();
        Ok(())
    }
}

impl<D: IterableDataset> Iterator for OwnSlices<'_, D> {
    type Item = Result<D::Item>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready == 0 {
            self.samples.as_ref()?;
            if let Err(error) = self.read_batch() {
                self.samples = None;
                return Some(Err(error));
            }
        }
        self.ready -= 1;
        self.held.pop_front().map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::super::FnIterableDataset;
    use super::*;

    #[test]
    fn an_error_ends_the_epoch() -> Result<()> {
        let broken = FnIterableDataset::new(|| {
            (0..9i64).map(|n| {
                if n == 5 {
                    Err(Error::EmptyDataset)
                } else {
                    Ok(n)
                }
            })
        });
        let layout = IterableLayout {
            batch_size: NonZeroUsize::MIN,
            drop_last: false,
            num_processes: NonZeroUsize::MIN.saturating_add(1),
            process_index: 0,
            split_batches: false,
        };
        let shard = IterableDatasetShard::new(broken, layout)?;
        let read: Vec<_> = shard.epoch().map(|sample| sample.ok()).collect();
        assert_eq!(read, [Some(0), Some(2), None]);
        Ok(())
    }

    #[test]
    fn a_stream_that_cannot_be_read_again_is_told() -> Result<()> {
        let opened = AtomicUsize::new(0);
        let once = FnIterableDataset::new(move || {
            let count = if opened.fetch_add(1, Ordering::Relaxed) == 0 {
                3
            } else {
                0
            };
            (0..count).map(Ok)
        });
        let layout = IterableLayout {
            batch_size: NonZeroUsize::MIN,
            drop_last: false,
            num_processes: NonZeroUsize::MIN.saturating_add(1),
            process_index: 1,
            split_batches: false,
        };
        let shard = IterableDatasetShard::new(once, layout)?;
        let last = shard.epoch().last();
        let message = last.and_then(Result::err).map(|error| error.to_string());
        assert!(message.is_some_and(|text| text.contains("drop_last")));
        Ok(())
    }
}
