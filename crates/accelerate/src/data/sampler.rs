use accelerate_torch::Generator;

use super::random_sampler::RandomSampler;
use crate::Result;

/// The indices of one epoch, in order; drawing them may fail.
pub type Indices<'a> = Box<dyn Iterator<Item = Result<usize>> + 'a>;

/// The order in which an epoch asks for samples.
pub trait Sampler {
    /// The number of indices in one epoch.
    fn len(&self) -> usize;

    /// Whether an epoch is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts an epoch. Indices are drawn when they are asked for.
    fn epoch(&self) -> Indices<'_>;

    /// Tells which epoch comes next; only samplers whose order depends on it listen.
    fn set_epoch(&self, _epoch: u64) {}

    /// The generator whose state decides the next order, if there is one of its own.
    ///
    /// A prepared loader sets it to rank 0's state before each epoch.
    fn generator(&self) -> Option<&Generator> {
        None
    }

    /// Called after [`generator`](Self::generator) got the state of rank 0.
    ///
    /// # Errors
    /// Those of reading the generator.
    fn generator_synchronized(&self) -> Result<()> {
        Ok(())
    }

    /// Takes a generator of its own, seeded from libtorch's global one, where it
    /// would draw from the global one.
    ///
    /// Ranks whose own generators are set to rank 0's state have one order. Preparing
    /// a loader for several ranks calls this.
    ///
    /// # Errors
    /// Those of making a generator.
    fn own_generator(&mut self) -> Result<()> {
        Ok(())
    }

    /// Whether [`choose_generator`](Self::choose_generator) has an effect: not where the program
    /// gave a generator, and not where nothing is drawn.
    fn may_choose_generator(&self) -> bool {
        false
    }

    /// Draws from a generator of its own from now on (`own`), or from libtorch's global one.
    ///
    /// By this a program that goes on with another number of ranks keeps its order: one process
    /// draws from the global generator, several draw from one of their own. The state of a new
    /// generator is set after.
    ///
    /// # Errors
    /// Those of making a generator.
    fn choose_generator(&self, _own: bool) -> Result<()> {
        Ok(())
    }

    /// The random sampler that this is, if it is one: preparing a loader may put a
    /// seedable one in its place.
    fn as_random(&mut self) -> Option<&mut RandomSampler> {
        None
    }
}

/// Indices `0..len` in their own order.
#[derive(Debug, Clone, Copy)]
pub struct SequentialSampler {
    len: usize,
}

impl SequentialSampler {
    /// The order `0..len`.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self { len }
    }
}

impl Sampler for SequentialSampler {
    fn len(&self) -> usize {
        self.len
    }

    fn epoch(&self) -> Indices<'_> {
        Box::new((0..self.len).map(Ok))
    }
}

/// The indices as they stand: a subset, or an order of one's own.
impl Sampler for Vec<usize> {
    fn len(&self) -> usize {
        self.as_slice().len()
    }

    fn epoch(&self) -> Indices<'_> {
        Box::new(self.iter().copied().map(Ok))
    }
}
