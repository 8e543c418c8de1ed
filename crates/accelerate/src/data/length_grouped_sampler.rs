use std::cmp::Reverse;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use accelerate_torch::Generator;

use super::own_generator::OwnGenerator;
use super::random_sampler::to_i64;
use super::sampler::{Indices, Sampler};
use super::weighted_sampler::whole_epoch;
use crate::{Error, Result};

/// How many batches are sorted together at most.
const MOST_BATCHES: usize = 50;

/// Into how many groups a small data set is cut at least.
const LEAST_GROUPS: usize = 4;

/// Random orders in which neighbours have about the same length, so that little padding is needed.
///
/// An epoch is a random permutation, cut into groups of up to 50 batches; each group is sorted,
/// longest first. The longest sample of all comes first: what does not fit into memory shows at
/// the first step.
///
/// ```
/// use std::num::NonZeroUsize;
/// use accelerate::data::{LengthGroupedSampler, Sampler};
///
/// let lengths = vec![3, 1, 4, 1, 5, 9, 2, 6];
/// let sampler = LengthGroupedSampler::new(lengths, NonZeroUsize::new(2).unwrap())?;
/// assert_eq!(sampler.epoch().next().unwrap()?, 5);
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Source
/// `LengthGroupedSampler` of Transformers (`group_by_length`): the same draws from the same
/// generators, the same order.
#[derive(Clone)]
pub struct LengthGroupedSampler {
    lengths: Vec<usize>,
    /// Samples that are sorted together.
    group: NonZeroUsize,
    generator: OwnGenerator,
}

impl LengthGroupedSampler {
    /// Orders of samples of these lengths, for batches of `batch_size`.
    ///
    /// With several ranks, `batch_size` is best what all of them take in a step.
    ///
    /// # Errors
    /// [`Error::EmptyDataset`] without lengths.
    pub fn new(lengths: Vec<usize>, batch_size: NonZeroUsize) -> Result<Self> {
        if lengths.is_empty() {
            return Err(Error::EmptyDataset);
        }
        let batches = lengths.len() / batch_size.get().saturating_mul(LEAST_GROUPS);
        let batches = NonZeroUsize::new(batches.min(MOST_BATCHES)).unwrap_or(NonZeroUsize::MIN);
        Ok(Self {
            lengths,
            group: batches.saturating_mul(batch_size),
            generator: OwnGenerator::default(),
        })
    }

    /// Uses `generator` for every epoch instead of libtorch's global one.
    #[must_use]
    pub fn generator(mut self, generator: impl Into<Arc<Generator>>) -> Self {
        self.generator = OwnGenerator::given(generator.into());
        self
    }

    fn draw(&self) -> Result<Vec<i64>> {
        let len = to_i64(self.lengths.len())?;
        let order = self.generator.draw(|generator| generator.randperm(len))?;
        Ok(Vec::try_from(&order)?)
    }

    /// Sorts each group of an order and brings the longest sample to its start.
    fn group(&self, mut order: Vec<usize>) -> Vec<usize> {
        let mut longest = 0;
        let starts = (0..order.len()).step_by(self.group.get());
        for start in starts {
            let end = order.len().min(start + self.group.get());
            // Stable, as the original's sort is.
            order[start..end].sort_by_key(|&index| Reverse(self.lengths[index]));
            if self.lengths[order[start]] > self.lengths[order[longest]] {
                longest = start;
            }
        }
        order.swap(0, longest);
        order
    }

    fn grouped_epoch(&self) -> Indices<'_> {
        match whole_epoch(|| self.draw()).collect() {
            Ok(order) => Box::new(self.group(order).into_iter().map(Ok)),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }
}

impl Sampler for LengthGroupedSampler {
    fn len(&self) -> usize {
        self.lengths.len()
    }

    fn epoch(&self) -> Indices<'_> {
        Box::new(std::iter::once_with(|| self.grouped_epoch()).flatten())
    }

    fn generator(&self) -> Option<&Generator> {
        self.generator.get()
    }

    fn own_generator(&mut self) -> Result<()> {
        self.generator.or_fresh()
    }

    fn may_choose_generator(&self) -> bool {
        self.generator.may_change()
    }

    fn choose_generator(&self, own: bool) -> Result<()> {
        self.generator.choose(own)
    }
}

impl fmt::Debug for LengthGroupedSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LengthGroupedSampler")
            .field("len", &self.lengths.len())
            .field("group", &self.group)
            .field("own_generator", &self.generator.get().is_some())
            .finish()
    }
}
