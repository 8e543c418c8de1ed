use std::fmt;
use std::num::NonZeroUsize;
use std::rc::Rc;

use super::sampler::{Indices, Sampler};
use crate::Result;

/// The batches of indices of one epoch, in order; drawing them may fail.
pub type BatchIndices<'a> = Box<dyn Iterator<Item = Result<Vec<usize>>> + 'a>;

/// The batches in which an epoch asks for samples.
///
/// [`BatchSampler`] is the usual one. A type of your own can group samples as it
/// likes, for example by length.
pub trait IndexBatches {
    /// The number of batches in one epoch.
    fn len(&self) -> usize;

    /// Whether an epoch has no batch.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size of every batch but perhaps the last; `None` if sizes vary.
    fn batch_size(&self) -> Option<NonZeroUsize>;

    /// The size of the last batch of an epoch, 0 if there is none; `None` if sizes vary.
    fn last_batch_len(&self) -> Option<usize>;

    /// Whether a short last batch is left out.
    fn drop_last(&self) -> bool {
        false
    }

    /// Starts an epoch. Batches are drawn when they are asked for.
    fn epoch(&self) -> BatchIndices<'_>;

    /// Starts an epoch behind its first `batches` batches, which are drawn but not handed out.
    ///
    /// Where batches are dealt out to ranks, `batches` counts those of all ranks together.
    fn epoch_after(&self, batches: usize) -> BatchIndices<'_> {
        match batches {
            0 => self.epoch(),
            left => Box::new(Behind {
                batches: self.epoch(),
                left,
            }),
        }
    }

    /// Tells which epoch comes next.
    fn set_epoch(&self, epoch: u64) {
        if let Some(sampler) = self.sampler() {
            sampler.set_epoch(epoch);
        }
    }

    /// The sampler whose indices are batched, if there is one.
    fn sampler(&self) -> Option<&dyn Sampler> {
        None
    }

    /// As [`sampler`](Self::sampler), to put another one in its place.
    fn sampler_mut(&mut self) -> Option<&mut Box<dyn Sampler>> {
        None
    }
}

macro_rules! batches_behind_pointer {
    ($($pointer:ident: $borrow:path),*) => {$(
        impl<B: IndexBatches + ?Sized> IndexBatches for $pointer<B> {
            fn len(&self) -> usize {
                (**self).len()
            }

            fn batch_size(&self) -> Option<NonZeroUsize> {
                (**self).batch_size()
            }

            fn last_batch_len(&self) -> Option<usize> {
                (**self).last_batch_len()
            }

            fn drop_last(&self) -> bool {
                (**self).drop_last()
            }

            fn epoch(&self) -> BatchIndices<'_> {
                (**self).epoch()
            }

            fn epoch_after(&self, batches: usize) -> BatchIndices<'_> {
                (**self).epoch_after(batches)
            }

            fn set_epoch(&self, epoch: u64) {
                (**self).set_epoch(epoch);
            }

            fn sampler(&self) -> Option<&dyn Sampler> {
                (**self).sampler()
            }

            fn sampler_mut(&mut self) -> Option<&mut Box<dyn Sampler>> {
                $borrow(self)?.sampler_mut()
            }
        }
    )*};
}

batches_behind_pointer!(Box: only_owner, Rc: Rc::get_mut);

/// As [`Rc::get_mut`], for a pointer that is never shared.
fn only_owner<B: ?Sized>(batches: &mut Box<B>) -> Option<&mut B> {
    Some(&mut **batches)
}

/// The batches as they stand, of any sizes.
impl IndexBatches for Vec<Vec<usize>> {
    fn len(&self) -> usize {
        self.as_slice().len()
    }

    fn batch_size(&self) -> Option<NonZeroUsize> {
        None
    }

    fn last_batch_len(&self) -> Option<usize> {
        None
    }

    fn epoch(&self) -> BatchIndices<'_> {
        Box::new(self.iter().cloned().map(Ok))
    }
}

/// Passes over the first batches when the first one behind them is asked for.
struct Behind<'a> {
    batches: BatchIndices<'a>,
    left: usize,
}

impl Iterator for Behind<'_> {
    type Item = Result<Vec<usize>>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.left > 0 {
            self.left -= 1;
            if let Err(error) = self.batches.next()? {
                self.left = 0;
                return Some(Err(error));
            }
        }
        self.batches.next()
    }
}

/// Cuts the order of a sampler into batches of one size.
pub struct BatchSampler {
    sampler: Box<dyn Sampler>,
    batch_size: NonZeroUsize,
    drop_last: bool,
}

impl BatchSampler {
    /// Batches of `batch_size` indices; a short last one is kept unless `drop_last`.
    pub fn new(sampler: impl Sampler + 'static, batch_size: NonZeroUsize, drop_last: bool) -> Self {
        Self::boxed(Box::new(sampler), batch_size, drop_last)
    }

    pub(super) fn boxed(
        sampler: Box<dyn Sampler>,
        batch_size: NonZeroUsize,
        drop_last: bool,
    ) -> Self {
        Self {
            sampler,
            batch_size,
            drop_last,
        }
    }
}

impl IndexBatches for BatchSampler {
    fn len(&self) -> usize {
        let size = self.batch_size.get();
        if self.drop_last {
            self.sampler.len() / size
        } else {
            self.sampler.len().div_ceil(size)
        }
    }

    fn batch_size(&self) -> Option<NonZeroUsize> {
        Some(self.batch_size)
    }

    fn last_batch_len(&self) -> Option<usize> {
        let size = self.batch_size.get();
        Some(match self.sampler.len() % size {
            rest if rest > 0 && !self.drop_last => rest,
            _ if self.is_empty() => 0,
            _ => size,
        })
    }

    fn drop_last(&self) -> bool {
        self.drop_last
    }

    fn epoch(&self) -> BatchIndices<'_> {
        Box::new(Cut {
            indices: self.sampler.epoch(),
            size: self.batch_size.get(),
            drop_last: self.drop_last,
            done: false,
        })
    }

    fn sampler(&self) -> Option<&dyn Sampler> {
        Some(self.sampler.as_ref())
    }

    fn sampler_mut(&mut self) -> Option<&mut Box<dyn Sampler>> {
        Some(&mut self.sampler)
    }
}

impl fmt::Debug for BatchSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchSampler")
            .field("len", &self.len())
            .field("batch_size", &self.batch_size)
            .field("drop_last", &self.drop_last)
            .finish_non_exhaustive()
    }
}

struct Cut<'a> {
    indices: Indices<'a>,
    size: usize,
    drop_last: bool,
    done: bool,
}

impl Iterator for Cut<'_> {
    type Item = Result<Vec<usize>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let batch = match self
            .indices
            .by_ref()
            .take(self.size)
            .collect::<Result<Vec<_>>>()
        {
            Ok(batch) => batch,
            Err(error) => {
                self.done = true;
                return Some(Err(error));
            }
        };
        self.done = batch.len() < self.size;
        let left_out = batch.is_empty() || self.done && self.drop_last;
        (!left_out).then_some(Ok(batch))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sampler::SequentialSampler;
    use super::*;

    #[test]
    fn length_and_last_batch_tell_what_is_yielded() -> Result<()> {
        for len in 0..20 {
            for size in (1..8).filter_map(NonZeroUsize::new) {
                for drop_last in [false, true] {
                    let sampler = BatchSampler::new(SequentialSampler::new(len), size, drop_last);
                    let batches = sampler.epoch().collect::<Result<Vec<_>>>()?;
                    assert_eq!(sampler.len(), batches.len());
                    assert_eq!(
                        sampler.last_batch_len(),
                        Some(batches.last().map_or(0, Vec::len))
                    );
                    let kept = if drop_last { len - len % size } else { len };
                    assert!(batches.concat().into_iter().eq(0..kept));
                }
            }
        }
        Ok(())
    }
}
