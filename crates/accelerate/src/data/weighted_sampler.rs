use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use accelerate_torch::Generator;
use tch::Tensor;

use super::own_generator::OwnGenerator;
use super::random_sampler::to_i64;
use super::sampler::{Indices, Sampler};
use crate::{Error, Result};

/// Indices drawn by weight: index `i` comes with a probability that grows with `weights[i]`.
///
/// ```
/// use std::num::NonZeroUsize;
/// use accelerate::data::{Sampler, WeightedRandomSampler};
///
/// // A rare class as often as a frequent one.
/// let weights = [0.1, 0.1, 0.1, 0.1, 0.4];
/// let sampler = WeightedRandomSampler::new(&weights, NonZeroUsize::new(20).unwrap())?;
/// assert_eq!(sampler.epoch().count(), 20);
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Source
/// `torch.utils.data.WeightedRandomSampler`: the same draws from the same
/// generators. Differs: weights that cannot be drawn from are refused at once, and
/// an index of weight 0 is never drawn.
#[derive(Clone)]
pub struct WeightedRandomSampler {
    weights: Vec<f64>,
    num_samples: NonZeroUsize,
    replacement: bool,
    generator: OwnGenerator,
}

impl WeightedRandomSampler {
    /// Draws `num_samples` indices per epoch, each independently of the others.
    ///
    /// Weights need not sum to 1.
    ///
    /// # Errors
    /// [`Error::EmptyDataset`] without weights, [`Error::Argument`] if one is negative
    /// or not finite, or all are 0.
    pub fn new(weights: &[f64], num_samples: NonZeroUsize) -> Result<Self> {
        if weights.is_empty() {
            return Err(Error::EmptyDataset);
        }
        if let Some(index) = weights.iter().position(|w| !w.is_finite() || *w < 0.0) {
            return Err(wrong(
                "weights of 0 or more".into(),
                format!("{} at index {index}", weights[index]),
            ));
        }
        if weights.iter().all(|&weight| weight == 0.0) {
            return Err(wrong("a weight above 0".into(), "zeros only".into()));
        }
        Ok(Self {
            weights: weights.to_vec(),
            num_samples,
            replacement: true,
            generator: OwnGenerator::default(),
        })
    }

    /// Draws no index twice in an epoch.
    ///
    /// # Errors
    /// [`Error::Argument`] if fewer indices have a weight above 0 than are to be drawn.
    pub fn without_replacement(mut self) -> Result<Self> {
        let choices = self.weights.iter().filter(|&&weight| weight > 0.0).count();
        if choices < self.num_samples.get() {
            return Err(wrong(
                format!(
                    "{} weights above 0 to draw without replacement",
                    self.num_samples
                ),
                format!("{choices}; draw fewer samples, or with replacement"),
            ));
        }
        self.replacement = false;
        Ok(self)
    }

    /// Uses `generator` for every epoch instead of libtorch's global one.
    #[must_use]
    pub fn generator(mut self, generator: impl Into<Arc<Generator>>) -> Self {
        self.generator = OwnGenerator::given(generator.into());
        self
    }

    fn draw(&self) -> Result<Vec<i64>> {
        let weights = Tensor::f_from_slice(&self.weights)?;
        let samples = to_i64(self.num_samples.get())?;
        let drawn = self
            .generator
            .draw(|generator| generator.multinomial(&weights, samples, self.replacement))?;
        Ok(Vec::try_from(&drawn)?)
    }
}

fn wrong(expected: String, found: String) -> Error {
    Error::Argument {
        operation: "WeightedRandomSampler",
        expected,
        found,
    }
}

impl Sampler for WeightedRandomSampler {
    fn len(&self) -> usize {
        self.num_samples.get()
    }

    fn epoch(&self) -> Indices<'_> {
        whole_epoch(|| self.draw())
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

impl fmt::Debug for WeightedRandomSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeightedRandomSampler")
            .field("len", &self.weights.len())
            .field("num_samples", &self.num_samples)
            .field("replacement", &self.replacement)
            .field("own_generator", &self.generator.get().is_some())
            .finish()
    }
}

/// An epoch that is drawn whole when its first index is asked for.
pub(super) fn whole_epoch<'a>(draw: impl FnOnce() -> Result<Vec<i64>> + 'a) -> Indices<'a> {
    let drawn = std::iter::once_with(draw).flat_map(|drawn| -> Indices<'_> {
        match drawn {
            Ok(indices) => Box::new(
                indices
                    .into_iter()
                    .map(|index| usize::try_from(index).map_err(Error::data)),
            ),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    });
    Box::new(drawn)
}
