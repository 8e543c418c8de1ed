//! The model that the stages train: small, and with the same first values wherever it is made.

use accelerate::nn::{Factory, Forward, Linear, Module, ModuleState};
use accelerate::tch::{self, Device, Kind, Tensor};
use accelerate_torch::autograd;

use crate::failure::Failure;

/// Two layers, from the features of a sample to its target.
#[derive(Debug, Module)]
pub(crate) struct Perceptron {
    hidden: Linear,
    output: Linear,
    state: ModuleState,
}

const FEATURES: i64 = 3;
const WIDTH: i64 = 16;

impl Perceptron {
    /// A model whose first values depend on `seed` alone, on the CPU.
    ///
    /// # Errors
    /// If memory is short.
    pub(crate) fn seeded(seed: i64, kind: Kind) -> Result<Self, Failure> {
        tch::manual_seed(seed);
        let factory = Factory::new(Device::Cpu, kind);
        Ok(Self {
            hidden: Linear::new(FEATURES, WIDTH, &factory)?,
            output: Linear::new(WIDTH, 1, &factory)?,
            state: ModuleState::default(),
        })
    }

    /// The same, on a device.
    ///
    /// # Errors
    /// As [`seeded`](Self::seeded).
    pub(crate) fn seeded_on(device: Device, seed: i64, kind: Kind) -> Result<Self, Failure> {
        let model = Self::seeded(seed, kind)?;
        model.to_device(device)?;
        Ok(model)
    }

    /// The mean squared error for the samples with these numbers.
    ///
    /// # Errors
    /// What a hook on the model reports.
    pub(crate) fn loss(&self, samples: &Tensor) -> Result<Tensor, Failure> {
        let kind = self.hidden.weight.tensor().kind();
        let angle = samples.f_to_kind(Kind::Float)?;
        let features = Tensor::f_stack(
            &[
                angle.f_sin()?,
                angle.f_mul_scalar(0.7)?.f_cos()?,
                angle.f_mul_scalar(1.3)?.f_sin()?,
            ],
            1,
        )?;
        let target = features.f_sum_dim_intlist([1].as_slice(), true, Kind::Float)?;
        let output = self.call(features.f_to_kind(kind)?)?;
        let difference = output.f_sub(&target.f_to_kind(kind)?)?;
        Ok(difference.f_square()?.f_mean(kind)?)
    }

    /// The parameters, for an optimizer.
    pub(crate) fn tensors(&self) -> Vec<Tensor> {
        let parameters = self.parameters().into_iter();
        parameters
            .map(|parameter| parameter.tensor().shallow_clone())
            .collect()
    }

    /// A copy of all parameters, one after the other.
    ///
    /// # Errors
    /// If memory is short.
    pub(crate) fn values(&self) -> Result<Tensor, Failure> {
        flat(&self.tensors())
    }

    /// A copy of all gradients, one after the other; zeros where there is none.
    ///
    /// # Errors
    /// If memory is short.
    pub(crate) fn gradients(&self) -> Result<Tensor, Failure> {
        let gradients = self.tensors().into_iter().map(|tensor| {
            let gradient = autograd::grad(&tensor)?;
            Ok(match gradient {
                Some(gradient) => gradient,
                None => tensor.f_zeros_like()?,
            })
        });
        flat(&gradients.collect::<Result<Vec<_>, Failure>>()?)
    }
}

impl Forward for Perceptron {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> accelerate::Result<Tensor> {
        self.output.call(self.hidden.call(input)?.f_tanh()?)
    }
}

fn flat(tensors: &[Tensor]) -> Result<Tensor, Failure> {
    tch::no_grad(|| {
        let parts = tensors
            .iter()
            .map(|tensor| Ok(tensor.f_detach()?.f_reshape([-1])?.f_to_kind(Kind::Float)?))
            .collect::<Result<Vec<_>, Failure>>()?;
        Ok(Tensor::f_cat(&parts, 0)?)
    })
}

/// The numbers of some samples, on a device.
///
/// # Errors
/// If memory is short.
pub(crate) fn samples(device: Device, from: usize, count: usize) -> Result<Tensor, Failure> {
    let number = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
    let range = (number(from), number(from + count));
    Ok(Tensor::f_arange_start(
        range.0,
        range.1,
        (Kind::Int64, device),
    )?)
}
