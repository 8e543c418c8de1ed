use std::num::NonZeroUsize;

use crate::Result;
use crate::data::collate::Collate;
use crate::data::dataset::Dataset;
use crate::data::iterable::{IterableDataLoaderShard, IterableDataset};
use crate::data::loader_state::DataLoaderState;
use crate::data::shard::DataLoaderShard;
use crate::tree::Tree;

/// The batches of one epoch, whatever makes them.
pub type Batches<'a, B> = Box<dyn Iterator<Item = Result<B>> + 'a>;

/// A prepared loader: what [`PreparedLoader`](super::PreparedLoader) runs through, and what a
/// [`DataLoaderDispatcher`](super::DataLoaderDispatcher) reads on rank 0.
pub trait BatchSource {
    /// One batch.
    type Batch: Tree;

    /// Starts an epoch; a failure to start is the first item.
    fn epoch(&self) -> Batches<'_, Self::Batch>;

    /// Starts an epoch behind its first `steps` batches, which are read and dropped unless
    /// the source knows better.
    fn epoch_from(&self, steps: usize) -> Batches<'_, Self::Batch> {
        let mut batches = self.epoch();
        let failed = (0..steps).find_map(|_| batches.next()?.err());
        Box::new(failed.map(Err).into_iter().chain(batches))
    }

    /// Tells which epoch comes next.
    fn set_epoch(&self, epoch: u64);

    /// The epoch that comes next.
    fn iteration(&self) -> u64;

    /// The number of batches in one epoch, where it is known beforehand.
    fn known_len(&self) -> Option<usize>;

    /// The size of every batch but perhaps the last; `None` if sizes vary.
    fn batch_size(&self) -> Option<NonZeroUsize>;

    /// Whether a short last batch is left out.
    fn drop_last(&self) -> bool;

    /// Draws from random generators what starting an epoch draws, and reads nothing: what
    /// ranks do that do not read, so that their generators stay beside rank 0's.
    ///
    /// # Errors
    /// Those of the generators.
    fn draw_start(&self) -> Result<()>;

    /// Where a loop would stand that begins now, before it draws anything.
    ///
    /// # Errors
    /// Those of the generators.
    fn beginning(&self) -> Result<DataLoaderState>;

    /// Where the loop over it stands.
    ///
    /// # Errors
    /// Those of the generators.
    fn state(&self) -> Result<DataLoaderState>;

    /// Makes the next epoch, or [`draw_start`](Self::draw_start), go on where `state` was taken.
    ///
    /// # Errors
    /// [`Error::StateMismatch`](crate::Error::StateMismatch) if it is of another loader.
    fn load_state(&self, state: &DataLoaderState) -> Result<()>;
}

impl<D, C> BatchSource for DataLoaderShard<D, C>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    type Batch = C::Batch;

    fn epoch(&self) -> Batches<'_, C::Batch> {
        Box::new(self.iter())
    }

    fn epoch_from(&self, steps: usize) -> Batches<'_, C::Batch> {
        Box::new(self.iter_from(steps))
    }

    fn set_epoch(&self, epoch: u64) {
        self.set_epoch(epoch);
    }

    fn iteration(&self) -> u64 {
        self.iteration()
    }

    fn known_len(&self) -> Option<usize> {
        Some(self.len())
    }

    fn batch_size(&self) -> Option<NonZeroUsize> {
        self.batch_sampler().batch_size()
    }

    fn drop_last(&self) -> bool {
        self.batch_sampler().drop_last()
    }

    fn draw_start(&self) -> Result<()> {
        self.draw_base_seed()
    }

    fn beginning(&self) -> Result<DataLoaderState> {
        self.beginning()
    }

    fn state(&self) -> Result<DataLoaderState> {
        self.state_dict()
    }

    fn load_state(&self, state: &DataLoaderState) -> Result<()> {
        self.load_state_dict(state)
    }
}

impl<D, C> BatchSource for IterableDataLoaderShard<D, C>
where
    D: IterableDataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    type Batch = C::Batch;

    fn epoch(&self) -> Batches<'_, C::Batch> {
        Box::new(self.iter())
    }

    fn set_epoch(&self, epoch: u64) {
        self.set_epoch(epoch);
    }

    fn iteration(&self) -> u64 {
        self.iteration()
    }

    fn known_len(&self) -> Option<usize> {
        self.known_len()
    }

    fn batch_size(&self) -> Option<NonZeroUsize> {
        Some(self.batch_size())
    }

    fn drop_last(&self) -> bool {
        self.drop_last()
    }

    fn draw_start(&self) -> Result<()> {
        self.draw_base_seed()
    }

    fn beginning(&self) -> Result<DataLoaderState> {
        self.beginning()
    }

    fn state(&self) -> Result<DataLoaderState> {
        self.state_dict()
    }

    fn load_state(&self, state: &DataLoaderState) -> Result<()> {
        self.load_state_dict(state)
    }
}
