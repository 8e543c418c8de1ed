//! Data sets that are read from their start on, and their loaders.

mod batcher;
mod builder;
mod dataset_shard;
mod loader;
mod lock_step;
mod position;
mod prepared;
mod prepared_iter;
mod rank_stream;
mod refill;
mod turns;
mod worker;

use std::fmt;
use std::sync::Arc;

use accelerate_torch::Generator;

use crate::{Error, Result};

pub use builder::IterableDataLoaderBuilder;
pub use dataset_shard::{IterableDatasetShard, IterableLayout};
pub use loader::{IterableDataLoader, IterableDataLoaderIter};
pub use prepared::IterableDataLoaderShard;
pub use prepared_iter::IterableDataLoaderShardIter;
pub(super) use turns::StreamProgress;

/// The samples of one epoch, in order; reading them may fail.
pub type Samples<'a, T> = Box<dyn Iterator<Item = Result<T>> + 'a>;

/// Samples that come one after the other, as from files or the network.
///
/// A data set whose length is known and whose samples can be asked for by index is a
/// [`Dataset`](super::Dataset) instead.
///
/// # Source
/// `torch.utils.data.IterableDataset`, and the sharding of the `datasets` library.
pub trait IterableDataset: Send + Sync {
    /// One sample.
    type Item: Send;

    /// Starts reading at the first sample of an epoch.
    ///
    /// Called again within an epoch it gives the same samples: the last step is filled
    /// up with samples from the start.
    fn epoch(&self) -> Samples<'_, Self::Item>;

    /// Tells which epoch comes next, for data sets whose order depends on it.
    fn set_epoch(&self, _epoch: u64) {}

    /// The number of samples in one epoch; `None` if it is not known.
    fn known_len(&self) -> Option<usize> {
        None
    }

    /// The generator that decides the order, if it is not [`set_epoch`](Self::set_epoch)
    /// that does. Where ranks share the stream it is seeded with the epoch.
    fn generator(&self) -> Option<&Generator> {
        None
    }

    /// Into how many parts the stream can be cut without reading all of it, such as the
    /// number of its files; 1 if it cannot.
    ///
    /// Where there are enough parts each rank, and each worker thread, reads only its own.
    fn num_shards(&self) -> usize {
        1
    }

    /// Starts reading one of `num` parts, which is at most [`num_shards`](Self::num_shards).
    ///
    /// The parts of one `num` are disjoint and together the whole stream, such as the files
    /// whose number is `index` modulo `num`.
    fn shard(&self, num: usize, index: usize) -> Samples<'_, Self::Item> {
        if num == 1 {
            return self.epoch();
        }
        Box::new(std::iter::once(Err(Error::Argument {
            operation: "IterableDataset::shard",
            expected: "an implementation, as `num_shards` says that there are parts".to_owned(),
            found: format!("none for part {index} of {num}"),
        })))
    }

    /// Starts reading one of `num` parts behind its first `samples` samples.
    ///
    /// For loops that go on where another one was stopped. Unless written, the samples are
    /// read and dropped: a data set that can jump to a place should.
    fn shard_after(&self, num: usize, index: usize, samples: usize) -> Samples<'_, Self::Item> {
        let mut rest = self.shard(num, index);
        for _ in 0..samples {
            match rest.next() {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Box::new(std::iter::once(Err(error))),
                // What has ended is not asked again.
                None => return Box::new(std::iter::empty()),
            }
        }
        rest
    }
}

macro_rules! iterable_behind_pointer {
    ($($pointer:ty),*) => {$(
        impl<D: IterableDataset + ?Sized> IterableDataset for $pointer {
            type Item = D::Item;

            fn epoch(&self) -> Samples<'_, D::Item> {
                (**self).epoch()
            }

            fn set_epoch(&self, epoch: u64) {
                (**self).set_epoch(epoch);
            }

            fn known_len(&self) -> Option<usize> {
                (**self).known_len()
            }

            fn generator(&self) -> Option<&Generator> {
                (**self).generator()
            }

            fn num_shards(&self) -> usize {
                (**self).num_shards()
            }

            fn shard(&self, num: usize, index: usize) -> Samples<'_, D::Item> {
                (**self).shard(num, index)
            }

            fn shard_after(
                &self,
                num: usize,
                index: usize,
                samples: usize,
            ) -> Samples<'_, D::Item> {
                (**self).shard_after(num, index, samples)
            }
        }
    )*};
}

iterable_behind_pointer!(&D, Box<D>, Arc<D>);

/// A stream that a closure opens anew for each epoch.
///
/// ```
/// use accelerate::data::{FnIterableDataset, IterableDataLoader};
///
/// let numbers = FnIterableDataset::new(|| (0..5i64).map(Ok));
/// let loader = IterableDataLoader::builder(numbers).batch_size(2).build()?;
/// let batches = loader.iter().map(|batch| Ok(Vec::<i64>::try_from(&batch?)?));
/// let batches = batches.collect::<accelerate::Result<Vec<_>>>()?;
/// assert_eq!(batches, [vec![0, 1], vec![2, 3], vec![4]]);
/// # Ok::<(), accelerate::Error>(())
/// ```
pub struct FnIterableDataset<F> {
    open: F,
    len: Option<usize>,
}

impl<T, I, F> FnIterableDataset<F>
where
    T: Send,
    I: Iterator<Item = Result<T>> + 'static,
    F: Fn() -> I + Send + Sync,
{
    /// The stream that `open` gives.
    pub fn new(open: F) -> Self {
        Self { open, len: None }
    }

    /// With a number of samples that is known beforehand.
    #[must_use]
    pub fn with_len(mut self, len: usize) -> Self {
        self.len = Some(len);
        self
    }
}

impl<T, I, F> IterableDataset for FnIterableDataset<F>
where
    T: Send,
    I: Iterator<Item = Result<T>> + 'static,
    F: Fn() -> I + Send + Sync,
{
    type Item = T;

    fn epoch(&self) -> Samples<'_, T> {
        Box::new((self.open)())
    }

    fn known_len(&self) -> Option<usize> {
        self.len
    }
}

impl<F> fmt::Debug for FnIterableDataset<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnIterableDataset")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
