use std::cell::Cell;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use accelerate_torch::Generator;

use super::own_generator::OwnGenerator;
use super::sampler::{Indices, Sampler};
use crate::{Error, Result};

/// How many indices one draw with replacement makes.
const REPLACEMENT_CHUNK: usize = 32;

/// Indices in random order.
///
/// Without a generator of its own it seeds a new one per epoch with a number
/// drawn from libtorch's global CPU generator. With one, each epoch goes on from
/// where the last one left it.
///
/// # Source
/// `torch.utils.data.RandomSampler`: the same draws in the same order, including
/// the permutation that is drawn at the end of an epoch to be thrown away.
#[derive(Clone)]
pub struct RandomSampler {
    len: NonZeroUsize,
    num_samples: usize,
    replacement: bool,
    generator: OwnGenerator,
}

impl RandomSampler {
    /// Permutations of `0..len`.
    ///
    /// # Errors
    /// [`Error::EmptyDataset`] if `len` is 0.
    pub fn new(len: usize) -> Result<Self> {
        let len = NonZeroUsize::new(len).ok_or(Error::EmptyDataset)?;
        Ok(Self {
            len,
            num_samples: len.get(),
            replacement: false,
            generator: OwnGenerator::default(),
        })
    }

    /// Uses `generator` for every epoch.
    #[must_use]
    pub fn generator(mut self, generator: impl Into<Arc<Generator>>) -> Self {
        self.generator = OwnGenerator::given(generator.into());
        self
    }

    /// Draws `num_samples` indices per epoch, over several permutations when it is more than `len`.
    #[must_use]
    pub fn num_samples(mut self, num_samples: NonZeroUsize) -> Self {
        self.num_samples = num_samples.get();
        self
    }

    /// Draws every index independently, so that some come several times.
    #[must_use]
    pub fn with_replacement(mut self) -> Self {
        self.replacement = true;
        self
    }

    /// The draws of one epoch: each is a number of indices to keep.
    fn draws(&self) -> impl Iterator<Item = usize> + use<> {
        let whole = if self.replacement {
            REPLACEMENT_CHUNK
        } else {
            self.len.get()
        };
        let rest = self.num_samples % whole;
        std::iter::repeat_n(whole, self.num_samples / whole).chain(std::iter::once(rest))
    }

    fn draw(&self, generator: &Generator, keep: usize) -> Result<Vec<i64>> {
        let len = to_i64(self.len.get())?;
        let drawn = if self.replacement {
            generator.randint(len, to_i64(keep)?)?
        } else {
            generator.randperm(len)?.f_narrow(0, 0, to_i64(keep)?)?
        };
        Ok(Vec::<i64>::try_from(&drawn)?)
    }

    fn epoch_with<'a>(
        &'a self,
        generator: impl FnOnce() -> Result<Source<'a>> + 'a,
    ) -> Indices<'a> {
        Box::new(RandomEpoch {
            sampler: self,
            draws: self.draws(),
            start: Some(generator),
            source: None,
            drawn: Vec::new().into_iter(),
            failed: false,
        })
    }
}

impl Sampler for RandomSampler {
    fn len(&self) -> usize {
        self.num_samples
    }

    fn epoch(&self) -> Indices<'_> {
        self.epoch_with(move || match self.generator.get() {
            Some(own) => Ok(Source::Shared(own)),
            None => Ok(Source::Epoch(fresh_generator()?)),
        })
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

    fn as_random(&mut self) -> Option<&mut RandomSampler> {
        Some(self)
    }
}

impl fmt::Debug for RandomSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RandomSampler")
            .field("len", &self.len)
            .field("num_samples", &self.num_samples)
            .field("replacement", &self.replacement)
            .field("own_generator", &self.generator.get().is_some())
            .finish()
    }
}

/// Where an epoch draws from: a generator that lives on, or one for this epoch.
enum Source<'a> {
    Shared(&'a Generator),
    Epoch(Generator),
}

/// Draws lazily, so that an epoch that is left early draws no more than it used.
struct RandomEpoch<'a, S, D> {
    sampler: &'a RandomSampler,
    draws: D,
    start: Option<S>,
    source: Option<Source<'a>>,
    drawn: std::vec::IntoIter<i64>,
    failed: bool,
}

impl<'a, S, D> RandomEpoch<'a, S, D>
where
    S: FnOnce() -> Result<Source<'a>>,
    D: Iterator<Item = usize>,
{
    fn refill(&mut self) -> Result<Option<usize>> {
        if let Some(start) = self.start.take() {
            self.source = Some(start()?);
        }
        loop {
            if let Some(index) = self.drawn.next() {
                return usize::try_from(index).map(Some).map_err(Error::data);
            }
            let (Some(keep), Some(source)) = (self.draws.next(), &self.source) else {
                return Ok(None);
            };
            let generator = match source {
                Source::Shared(generator) => generator,
                // Nobody can see what a generator of this epoch alone would draw for nothing.
                Source::Epoch(_) if keep == 0 => continue,
                Source::Epoch(generator) => generator,
            };
            self.drawn = self.sampler.draw(generator, keep)?.into_iter();
        }
    }
}

impl<'a, S, D> Iterator for RandomEpoch<'a, S, D>
where
    S: FnOnce() -> Result<Source<'a>>,
    D: Iterator<Item = usize>,
{
    type Item = Result<usize>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.refill().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

/// Indices in a random order that is a function of seed and epoch alone.
///
/// Epoch `e` is the order of a generator seeded with `seed + e`. The order does
/// not depend on how many draws the program made before, nor on the number of
/// ranks, so a run can be resumed in any epoch.
///
/// # Source
/// `accelerate.data_loader.SeedableRandomSampler`. Differs: in a prepared loader
/// rank 0's seed holds on every rank, so ranks that were seeded differently do
/// not read samples twice.
#[derive(Debug)]
pub struct SeedableRandomSampler {
    inner: RandomSampler,
    generator: Generator,
    seed: Cell<u64>,
    epoch: Cell<u64>,
}

impl SeedableRandomSampler {
    /// Permutations of `0..len`, the first one of seed `seed`.
    ///
    /// # Errors
    /// [`Error::EmptyDataset`] if `len` is 0, and those of making a generator.
    pub fn new(len: usize, seed: u64) -> Result<Self> {
        Self::from_random(RandomSampler::new(len)?, seed)
    }

    /// As [`new`](Self::new), with the settings of `inner` but not its generator.
    pub(super) fn from_random(inner: RandomSampler, seed: u64) -> Result<Self> {
        let generator = Generator::new(seed)?;
        Ok(Self {
            inner,
            generator,
            seed: Cell::new(seed),
            epoch: Cell::new(0),
        })
    }
}

impl Sampler for SeedableRandomSampler {
    fn len(&self) -> usize {
        self.inner.len()
    }

    /// Starts the current epoch; when it was drawn to its end, the next one is current.
    fn epoch(&self) -> Indices<'_> {
        let epoch = self.epoch.get();
        let seed = self.seed.get().wrapping_add(epoch);
        let order = self
            .inner
            .epoch_with(move || Ok(Source::Epoch(Generator::new(seed)?)));
        Box::new(order.chain(std::iter::from_fn(move || {
            self.epoch.set(epoch.wrapping_add(1));
            None
        })))
    }

    fn set_epoch(&self, epoch: u64) {
        self.epoch.set(epoch);
    }

    fn generator(&self) -> Option<&Generator> {
        Some(&self.generator)
    }

    fn generator_synchronized(&self) -> Result<()> {
        self.seed.set(self.generator.initial_seed()?);
        Ok(())
    }
}

/// A generator seeded with a number drawn from the global one.
pub(super) fn fresh_generator() -> Result<Generator> {
    // The drawn number's bits are the seed, whatever its sign.
    let seed = Generator::default_cpu()?.random_i64()?.cast_unsigned();
    Ok(Generator::new(seed)?)
}

pub(super) fn to_i64(number: usize) -> Result<i64> {
    i64::try_from(number).map_err(Error::data)
}
