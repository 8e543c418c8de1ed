use std::fmt;

use super::DataLoaderDispatcher;
use super::source::{BatchSource, Batches};
use crate::Result;
use crate::data::collate::Collate;
use crate::data::dataset::Dataset;
use crate::data::iterable::{IterableDataLoaderShard, IterableDataset};
use crate::data::loader_state::DataLoaderState;
use crate::data::shard::DataLoaderShard;
use crate::data::stack::Stack;

/// What [`Accelerator::prepare`](crate::Accelerator::prepare) makes of a loader: each rank
/// reads its own part, or rank 0 reads and deals out.
pub enum PreparedLoader<S> {
    /// Each rank reads its own part.
    Shard(S),
    /// Rank 0 reads all of it and deals out.
    Dispatcher(DataLoaderDispatcher<S>),
}

/// A prepared [`DataLoader`](crate::data::DataLoader).
pub type PreparedDataLoader<D, C = Stack> = PreparedLoader<DataLoaderShard<D, C>>;

/// A prepared [`IterableDataLoader`](crate::data::IterableDataLoader).
pub type PreparedIterableDataLoader<D, C = Stack> = PreparedLoader<IterableDataLoaderShard<D, C>>;

impl<S: BatchSource> PreparedLoader<S> {
    /// The loader that reads: of this rank's part, or of everything on rank 0.
    pub fn reader(&self) -> &S {
        match self {
            Self::Shard(shard) => shard,
            Self::Dispatcher(dispatcher) => dispatcher.source(),
        }
    }

    /// The loader of this rank's part, if each rank reads its own.
    pub fn as_shard(&self) -> Option<&S> {
        match self {
            Self::Shard(shard) => Some(shard),
            Self::Dispatcher(_) => None,
        }
    }
}

impl<S: BatchSource> PreparedLoader<S> {
    /// Starts an epoch; a failure to start is the first item.
    pub fn iter(&self) -> PreparedLoaderIter<'_, S> {
        let batches: Batches<'_, S::Batch> = match self {
            Self::Shard(shard) => shard.epoch(),
            Self::Dispatcher(dispatcher) => Box::new(dispatcher.iter()),
        };
        PreparedLoaderIter { batches }
    }

    /// One epoch without its first `steps` steps. Where it can be helped they are not read.
    ///
    /// # Source
    /// `accelerate.skip_first_batches`. Differs: `steps` are steps of every rank for loaders
    /// that rank 0 deals out too, and metrics are trimmed as in an epoch from the start.
    pub fn skip_first_batches(&self, steps: usize) -> PreparedLoaderIter<'_, S> {
        let batches: Batches<'_, S::Batch> = match self {
            Self::Shard(shard) => shard.epoch_from(steps),
            Self::Dispatcher(dispatcher) => Box::new(dispatcher.iter_from(steps as u64)),
        };
        PreparedLoaderIter { batches }
    }

    /// The epoch that comes next: how many were gone through to their end, or what was set.
    pub fn iteration(&self) -> u64 {
        match self {
            Self::Shard(shard) => shard.iteration(),
            Self::Dispatcher(dispatcher) => dispatcher.iteration(),
        }
    }

    /// Sets the epoch that comes next.
    pub fn set_epoch(&self, epoch: u64) {
        match self {
            Self::Shard(shard) => shard.set_epoch(epoch),
            Self::Dispatcher(dispatcher) => dispatcher.set_epoch(epoch),
        }
    }

    /// The number of batches in one epoch on this rank, where it is known beforehand.
    pub fn known_len(&self) -> Option<usize> {
        match self {
            Self::Shard(shard) => shard.known_len(),
            Self::Dispatcher(dispatcher) => dispatcher.known_len(),
        }
    }

    /// Where the loader stands: how many batches were handed out in its epoch.
    ///
    /// # Errors
    /// Those of reading generators.
    pub fn state_dict(&self) -> Result<DataLoaderState> {
        match self {
            Self::Shard(shard) => shard.state(),
            Self::Dispatcher(dispatcher) => dispatcher.state_dict(),
        }
    }

    /// Makes the next loop go on where `state` was taken: see
    /// [`DataLoaderShard::load_state_dict`], [`IterableDataLoaderShard::load_state_dict`] and
    /// [`DataLoaderDispatcher::load_state_dict`].
    ///
    /// # Errors
    /// [`Error::StateMismatch`](crate::Error::StateMismatch) if the state is of another loader.
    pub fn load_state_dict(&self, state: &DataLoaderState) -> Result<()> {
        match self {
            Self::Shard(shard) => shard.load_state(state),
            Self::Dispatcher(dispatcher) => dispatcher.load_state_dict(state),
        }
    }
}

impl<D, C> PreparedLoader<DataLoaderShard<D, C>>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    /// The number of batches in one epoch on this rank.
    pub fn len(&self) -> usize {
        self.known_len().unwrap_or_default()
    }

    /// Whether this rank gets no batch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of samples in one step of all ranks together; `None` if it varies.
    pub fn total_batch_size(&self) -> Option<usize> {
        match self {
            Self::Shard(shard) => shard.total_batch_size(),
            Self::Dispatcher(dispatcher) => dispatcher.total_batch_size(),
        }
    }

    /// The number of samples in the data set, over all ranks.
    pub fn total_dataset_length(&self) -> usize {
        self.reader().total_dataset_length()
    }

    /// The data set, whole.
    pub fn dataset(&self) -> &D {
        self.reader().dataset()
    }
}

impl<D, C> PreparedLoader<IterableDataLoaderShard<D, C>>
where
    D: IterableDataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    /// The number of samples in one step of all ranks together.
    pub fn total_batch_size(&self) -> usize {
        match self {
            Self::Shard(shard) => shard.total_batch_size(),
            Self::Dispatcher(dispatcher) => dispatcher.total_batch_size().unwrap_or_default(),
        }
    }

    /// The number of samples in the data set, over all ranks, where it is known.
    pub fn total_dataset_length(&self) -> Option<usize> {
        self.reader().total_dataset_length()
    }

    /// The data set, whole.
    pub fn dataset(&self) -> &D {
        self.reader().dataset()
    }
}

impl<'a, S: BatchSource> IntoIterator for &'a PreparedLoader<S> {
    type Item = Result<S::Batch>;
    type IntoIter = PreparedLoaderIter<'a, S>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<S: fmt::Debug> fmt::Debug for PreparedLoader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shard(shard) => shard.fmt(f),
            Self::Dispatcher(dispatcher) => dispatcher.fmt(f),
        }
    }
}

/// The batches of one epoch of a [`PreparedLoader`].
pub struct PreparedLoaderIter<'a, S: BatchSource> {
    batches: Batches<'a, S::Batch>,
}

impl<S: BatchSource> Iterator for PreparedLoaderIter<'_, S> {
    type Item = Result<S::Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batches.next()
    }
}

impl<S: BatchSource> fmt::Debug for PreparedLoaderIter<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedLoaderIter").finish_non_exhaustive()
    }
}
