//! A small network with equal values on every rank, and what its gradients have to be.

use accelerate_torch::autograd::{self, BackwardOptions};
use accelerate_torch::{ProcessGroup, ReduceOp, Reducer, Result};
use tch::Tensor;

use crate::support::{float, numbers, real};

/// Linear layers with a rectifier between them.
pub(crate) struct Network {
    layers: Vec<(Tensor, Tensor)>,
}

impl Network {
    /// `sizes[i]` values go into layer `i`, and `sizes[i + 1]` come out.
    pub(crate) fn new(sizes: &[i64]) -> Result<Self> {
        let layers = sizes
            .windows(2)
            .map(|pair| Ok((leaf(&[pair[1], pair[0]], 0.7)?, leaf(&[pair[1]], 1.3)?)))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self { layers })
    }

    /// Named as in `torch.nn.Sequential`.
    pub(crate) fn parameters(&self) -> Vec<(String, Tensor)> {
        let of_layer = |(index, (weight, bias)): (usize, &(Tensor, Tensor))| {
            [
                (format!("{}.weight", 2 * index), weight.shallow_clone()),
                (format!("{}.bias", 2 * index), bias.shallow_clone()),
            ]
        };
        self.layers.iter().enumerate().flat_map(of_layer).collect()
    }

    pub(crate) fn tensors(&self) -> Vec<Tensor> {
        self.parameters()
            .into_iter()
            .map(|(_, tensor)| tensor)
            .collect()
    }

    pub(crate) fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let mut value = input.shallow_clone();
        for (index, (weight, bias)) in self.layers.iter().enumerate() {
            if index > 0 {
                value = value.f_relu()?;
            }
            value = value.f_linear(weight, Some(bias))?;
        }
        Ok(value)
    }

    pub(crate) fn loss(&self, input: &Tensor) -> Result<Tensor> {
        Ok(self.forward(input)?.f_square()?.f_mean(None)?)
    }

    pub(crate) fn clear_gradients(&self) -> Result<()> {
        self.tensors()
            .iter()
            .try_for_each(|tensor| autograd::set_grad(tensor, None))
    }

    /// A forward and a backward pass whose gradients are reduced. Gives the loss.
    pub(crate) fn reduced_step(&self, reducer: &Reducer, input: &Tensor) -> Result<f64> {
        reducer.prepare_for_forward()?;
        reducer.rebuild_buckets()?;
        let loss = self.loss(input)?;
        reducer.prepare_for_backward(&[loss.shallow_clone()])?;
        backward(&loss)?;
        Ok(loss.f_double_value(&[])?)
    }
}

/// A leaf with values in -0.25..0.25, the same on every rank.
pub(crate) fn leaf(shape: &[i64], phase: f64) -> Result<Tensor> {
    let count = usize::try_from(shape.iter().product::<i64>()).unwrap_or(0);
    let values: Vec<f64> = (0..count)
        .map(|index| (real(index) * phase).sin() / 4.0)
        .collect();
    let tensor = float(&values)?.f_view(shape)?;
    Ok(tensor.f_set_requires_grad(true)?)
}

/// `rows` rows of input that no other rank and no other step has.
pub(crate) fn input(rank: usize, step: usize, rows: i64, columns: i64) -> Result<Tensor> {
    let count = usize::try_from(rows * columns).unwrap_or(0);
    let first = real(1000 * rank + 77 * step);
    let values: Vec<f64> = (0..count)
        .map(|index| (first + real(index)).cos())
        .collect();
    Ok(float(&values)?.f_view([rows, columns])?)
}

pub(crate) fn backward(loss: &Tensor) -> Result<()> {
    autograd::backward(&[loss.shallow_clone()], None, BackwardOptions::default())
}

/// The gradients of all tensors; those without one get an empty tensor.
pub(crate) fn gradients(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    tensors
        .iter()
        .map(|tensor| {
            autograd::grad(tensor)?.map_or_else(|| float(&[]), |g| Ok(g.f_detach_copy()?))
        })
        .collect()
}

/// What every rank has to hold after a reduction: each local gradient divided by the
/// number of ranks, then added.
pub(crate) fn averaged(group: &ProcessGroup, local: &[Tensor]) -> Result<Vec<Tensor>> {
    let ranks = i64::try_from(group.size()).unwrap_or(i64::MAX);
    local
        .iter()
        .map(|gradient| {
            let part = gradient.f_div_scalar(ranks)?;
            group.all_reduce(&part, ReduceOp::Sum)?;
            Ok(part)
        })
        .collect()
}

/// The averages over ranks of the gradients that one network alone has for this input.
pub(crate) fn expected(group: &ProcessGroup, sizes: &[i64], input: &Tensor) -> Result<Vec<Tensor>> {
    let alone = Network::new(sizes)?;
    backward(&alone.loss(input)?)?;
    averaged(group, &gradients(&alone.tensors())?)
}

/// Two ranks add in one order only and are compared bit for bit.
pub(crate) fn assert_equal(
    group: &ProcessGroup,
    found: &[Tensor],
    expected: &[Tensor],
) -> Result<()> {
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.size(), expected.size(), "gradient {index}");
        let equal = if group.size() == 2 {
            found.f_equal(expected)?
        } else {
            found.f_allclose(expected, 1e-6, 1e-8, false)?
        };
        assert!(
            equal,
            "gradient {index}: {:?}, not {:?}",
            numbers(found)?,
            numbers(expected)?
        );
    }
    Ok(())
}
