use super::collate::Collate;
use super::dataset::Dataset;
use super::dispatcher::{BatchSource, PreparedLoader, PreparedLoaderIter};
use super::loader::{DataLoader, DataLoaderIter, Start};
use super::shard::DataLoaderShard;
use super::shard_iter::DataLoaderShardIter;
use crate::Result;

/// The rest of an epoch of `loader`, behind its first `num_batches` batches.
///
/// Samples that are left out are not read. For a prepared loader `num_batches`
/// counts the batches of this rank. Go through it once, then through the loader.
///
/// ```
/// use accelerate::data::{DataLoader, skip_first_batches};
///
/// let loader = DataLoader::builder(vec![1i64, 2, 3, 4, 5]).batch_size(2).build()?;
/// let rest = skip_first_batches(&loader, 1);
/// assert_eq!(rest.len(), 2);
/// for batch in rest {
///     assert!(batch?.int64_value(&[0]) >= 3);
/// }
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Source
/// `accelerate.skip_first_batches`. Differs: it borrows the loader instead of making
/// another one, so `drop_last`, `non_blocking` and the device hold, metrics are
/// trimmed on the last batch, and the epoch counts: the loop that follows over the
/// loader itself is the next epoch. The original forgets the first two and trims
/// nothing, and there the epoch comes again unless `set_epoch` is called.
#[must_use]
pub fn skip_first_batches<L>(loader: &L, num_batches: usize) -> RestOfEpoch<'_, L> {
    RestOfEpoch {
        loader,
        num_batches,
    }
}

/// What [`skip_first_batches`] leaves of an epoch.
#[derive(Debug)]
pub struct RestOfEpoch<'a, L> {
    loader: &'a L,
    num_batches: usize,
}

impl<L> Clone for RestOfEpoch<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for RestOfEpoch<'_, L> {}

impl<'a, L> RestOfEpoch<'a, L> {
    /// The loader.
    pub fn loader(&self) -> &'a L {
        self.loader
    }

    /// How many batches are left out.
    pub fn num_skipped(&self) -> usize {
        self.num_batches
    }
}

macro_rules! rest_of_loader {
    ($loader:ident, $iter:ident, $start:expr) => {
        impl<D: Dataset, C: Collate<D::Item>> RestOfEpoch<'_, $loader<D, C>> {
            /// The number of batches that are left.
            pub fn len(&self) -> usize {
                self.loader.len().saturating_sub(self.num_batches)
            }

            /// Whether no batch is left.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }

        impl<'a, D, C> IntoIterator for RestOfEpoch<'a, $loader<D, C>>
        where
            D: Dataset + 'static,
            C: Collate<D::Item> + 'static,
            C::Batch: 'static,
        {
            type Item = Result<C::Batch>;
            type IntoIter = $iter<'a, D, C>;

            fn into_iter(self) -> Self::IntoIter {
                self.loader.iter_from($start(self.num_batches))
            }
        }

        impl<'a, D, C> IntoIterator for &RestOfEpoch<'a, $loader<D, C>>
        where
            D: Dataset + 'static,
            C: Collate<D::Item> + 'static,
            C::Batch: 'static,
        {
            type Item = Result<C::Batch>;
            type IntoIter = $iter<'a, D, C>;

            fn into_iter(self) -> Self::IntoIter {
                (*self).into_iter()
            }
        }
    };
}

rest_of_loader!(DataLoader, DataLoaderIter, |skipped| Start {
    passed_over: skipped,
    number: skipped,
    draw_now: false,
    notes_indices: false,
});
rest_of_loader!(DataLoaderShard, DataLoaderShardIter, std::convert::identity);

impl<'a, S: BatchSource> IntoIterator for RestOfEpoch<'a, PreparedLoader<S>> {
    type Item = Result<S::Batch>;
    type IntoIter = PreparedLoaderIter<'a, S>;

    fn into_iter(self) -> Self::IntoIter {
        self.loader.skip_first_batches(self.num_batches)
    }
}
