use std::fmt;
use std::sync::Arc;

use accelerate_torch::Generator;

use super::dataset::Dataset;
use super::own_generator::OwnGenerator;
use super::random_sampler::to_i64;
use super::sampler::{Indices, Sampler};
use super::weighted_sampler::whole_epoch;
use crate::{Error, Result};

/// Some samples of a data set, as a data set of their own; a fold of a cross validation.
///
/// ```
/// use accelerate::data::{Dataset, Subset};
///
/// let evens = Subset::new(vec![10, 11, 12, 13], vec![0, 2])?;
/// assert_eq!((evens.len(), evens.get(1)?), (2, 12));
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Source
/// `torch.utils.data.Subset`.
#[derive(Debug, Clone)]
pub struct Subset<D> {
    dataset: D,
    indices: Vec<usize>,
}

impl<D: Dataset> Subset<D> {
    /// The samples of `dataset` at `indices`, in that order.
    ///
    /// # Errors
    /// [`Error::Argument`] if an index is out of range.
    pub fn new(dataset: D, indices: Vec<usize>) -> Result<Self> {
        let len = dataset.len();
        if let Some(index) = indices.iter().find(|&&index| index >= len) {
            return Err(Error::Argument {
                operation: "Subset::new",
                expected: format!("indices below {len}"),
                found: index.to_string(),
            });
        }
        Ok(Self { dataset, indices })
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        self.indices.len()
    }

    fn get(&self, index: usize) -> Result<D::Item> {
        self.dataset.get(Dataset::get(&self.indices, index)?)
    }
}

/// Given indices in random order, each once.
///
/// # Source
/// `torch.utils.data.SubsetRandomSampler`: the same draws from the same generators.
#[derive(Clone)]
pub struct SubsetRandomSampler {
    indices: Vec<usize>,
    generator: OwnGenerator,
}

impl SubsetRandomSampler {
    /// Orders of `indices`.
    #[must_use]
    pub fn new(indices: Vec<usize>) -> Self {
        Self {
            indices,
            generator: OwnGenerator::default(),
        }
    }

    /// Uses `generator` for every epoch instead of libtorch's global one.
    #[must_use]
    pub fn generator(mut self, generator: impl Into<Arc<Generator>>) -> Self {
        self.generator = OwnGenerator::given(generator.into());
        self
    }

    fn draw(&self) -> Result<Vec<i64>> {
        let len = to_i64(self.indices.len())?;
        let order = self.generator.draw(|generator| generator.randperm(len))?;
        Ok(Vec::try_from(&order)?)
    }
}

impl Sampler for SubsetRandomSampler {
    fn len(&self) -> usize {
        self.indices.len()
    }

    fn epoch(&self) -> Indices<'_> {
        Box::new(whole_epoch(|| self.draw()).map(|place| Ok(self.indices[place?])))
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

impl fmt::Debug for SubsetRandomSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubsetRandomSampler")
            .field("len", &self.indices.len())
            .field("own_generator", &self.generator.get().is_some())
            .finish()
    }
}
