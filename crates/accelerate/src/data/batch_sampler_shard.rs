use std::cell::Cell;
use std::fmt;
use std::num::NonZeroUsize;
use std::rc::Rc;

use super::batch_deal::{Deal, Split};
use super::batch_sampler::{BatchIndices, IndexBatches};
use super::sampler::Sampler;
use crate::{Error, Result};

/// How batches are dealt out to ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardLayout {
    /// The number of ranks.
    pub num_processes: NonZeroUsize,
    /// The rank whose part is wanted, below `num_processes`.
    pub process_index: usize,
    /// Cuts each batch into equal parts instead of dealing out whole batches.
    pub split_batches: bool,
    /// Gives every rank equally many full batches, filled up from the start of the epoch's order.
    pub even_batches: bool,
}

/// The part of an epoch's batches that one rank gets.
///
/// Whole batches are dealt out in turn: batch `i` goes to rank `i mod n`. With
/// `even_batches` the last round is filled up with samples from the start of this
/// epoch's order, so that every rank takes equally many steps with full batches;
/// without, nothing is repeated and late ranks may get one batch less.
///
/// # Source
/// `accelerate.data_loader.BatchSamplerShard`. Differs: [`len`](IndexBatches::len)
/// is the number of batches that this rank really gets, and a short batch in the
/// middle of an epoch is dealt out like any other instead of being lost.
pub struct BatchSamplerShard<B> {
    batches: B,
    layout: ShardLayout,
    /// What holds instead of the layout's `even_batches`: it may change between epochs.
    even_batches: Rc<Cell<bool>>,
    /// How many samples a last round has that repeats whole batches, once it was drawn.
    once_in_last_round: Rc<Cell<Option<usize>>>,
}

impl<B: IndexBatches> BatchSamplerShard<B> {
    /// The part of `batches` that `layout` names.
    ///
    /// # Errors
    /// [`Error::Argument`] if the rank is not below the number of ranks, or if
    /// batches are to be split but their size varies or is no multiple of the
    /// number of ranks.
    pub fn new(batches: B, layout: ShardLayout) -> Result<Self> {
        let ShardLayout {
            num_processes,
            process_index,
            split_batches,
            ..
        } = layout;
        let wrong = |expected: String, found: String| {
            Err(Error::Argument {
                operation: "BatchSamplerShard::new",
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
        match batches.batch_size() {
            None if split_batches => wrong(
                "a fixed batch size to split batches".into(),
                "batches whose size varies; turn `split_batches` off".into(),
            ),
            Some(size) if split_batches && size.get() % num_processes.get() != 0 => wrong(
                format!("a batch size that is a multiple of {num_processes} to split batches"),
                format!("{size}; choose another size or turn `split_batches` off"),
            ),
            _ => Ok(Self {
                batches,
                layout,
                even_batches: Rc::new(Cell::new(layout.even_batches)),
                once_in_last_round: Rc::default(),
            }),
        }
    }

    /// Whether the last round is filled up, see [`ShardLayout::even_batches`].
    pub fn even_batches(&self) -> bool {
        self.even_batches.get()
    }

    /// Changes [`even_batches`](Self::even_batches) from the next epoch on.
    pub fn set_even_batches(&self, even_batches: bool) {
        self.even_batches.set(even_batches);
    }

    /// The same switch, for one who does not hold the shard.
    pub(super) fn even_batches_switch(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.even_batches)
    }

    /// How many samples the last round holds without repetition, where batches vary in
    /// size and some were repeated: known when the round was drawn.
    pub(super) fn once_in_last_round(&self) -> Rc<Cell<Option<usize>>> {
        Rc::clone(&self.once_in_last_round)
    }

    fn current_layout(&self) -> ShardLayout {
        ShardLayout {
            even_batches: self.even_batches(),
            ..self.layout
        }
    }

    fn is_short(&self, len: usize) -> bool {
        self.batches
            .batch_size()
            .is_some_and(|size| len < size.get())
    }

    fn split_len(&self) -> usize {
        let all = self.batches.len();
        let (Some(part), Some(last)) = (self.part(), self.batches.last_batch_len()) else {
            return all;
        };
        let ends_here = self.is_short(last)
            && (self.batches.drop_last()
                || !self.even_batches() && last <= part * self.layout.process_index);
        all - usize::from(ends_here && all > 0)
    }

    fn dealt_len(&self) -> usize {
        let ranks = self.layout.num_processes.get();
        let all = self.batches.len();
        if self.batches.drop_last() {
            all / ranks
        } else if self.even_batches() {
            all.div_ceil(ranks)
        } else {
            all / ranks + usize::from(self.layout.process_index < all % ranks)
        }
    }

    /// The number of samples of a split batch that one rank gets.
    fn part(&self) -> Option<usize> {
        self.batches
            .batch_size()
            .map(|size| size.get() / self.layout.num_processes.get())
    }
}

impl<B: IndexBatches> IndexBatches for BatchSamplerShard<B> {
    fn len(&self) -> usize {
        if self.layout.split_batches {
            self.split_len()
        } else {
            self.dealt_len()
        }
    }

    /// The number of samples per batch on this rank.
    fn batch_size(&self) -> Option<NonZeroUsize> {
        if self.layout.split_batches {
            self.part().and_then(NonZeroUsize::new)
        } else {
            self.batches.batch_size()
        }
    }

    fn last_batch_len(&self) -> Option<usize> {
        let rank = self.layout.process_index;
        let (size, last) = (self.batch_size()?.get(), self.batches.last_batch_len()?);
        if self.is_empty() {
            return Some(0);
        }
        let filled = self.even_batches() || self.batches.drop_last();
        let own = match self.layout.split_batches {
            _ if filled || !self.is_short(last) => size,
            true => last.saturating_sub(size * rank).min(size),
            false if (self.batches.len() - 1) % self.layout.num_processes.get() == rank => last,
            false => size,
        };
        // A rank that gets nothing of the short batch ends with the full one before.
        Some(if own == 0 { size } else { own })
    }

    fn drop_last(&self) -> bool {
        self.batches.drop_last()
    }

    fn epoch(&self) -> BatchIndices<'_> {
        self.epoch_after(0)
    }

    fn epoch_after(&self, batches: usize) -> BatchIndices<'_> {
        let (epoch, drop_last) = (self.batches.epoch(), self.batches.drop_last());
        let (size, layout) = (
            self.batches.batch_size().map(NonZeroUsize::get),
            self.current_layout(),
        );
        match size {
            Some(size) if layout.split_batches => {
                Box::new(Split::new(epoch, size, layout, drop_last, batches))
            }
            _ => Box::new(Deal::new(
                epoch,
                size,
                layout,
                drop_last,
                batches,
                &self.once_in_last_round,
            )),
        }
    }

    fn set_epoch(&self, epoch: u64) {
        self.batches.set_epoch(epoch);
    }

    fn sampler(&self) -> Option<&dyn Sampler> {
        self.batches.sampler()
    }

    fn sampler_mut(&mut self) -> Option<&mut Box<dyn Sampler>> {
        self.batches.sampler_mut()
    }
}

impl<B: IndexBatches> fmt::Debug for BatchSamplerShard<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchSamplerShard")
            .field("len", &self.len())
            .field("layout", &self.current_layout())
            .finish_non_exhaustive()
    }
}
