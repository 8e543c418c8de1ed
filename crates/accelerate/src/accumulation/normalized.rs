use std::cell::RefCell;
use std::collections::HashMap;

use accelerate_torch::{ProcessGroup, ReduceOp, autograd, foreach};
use tch::{Device, Kind, Tensor};

use super::models::{ModelGradients, ModelId};
use crate::{Error, Result};

/// The loss of all batches of all ranks, at a step that completes gradients.
#[derive(Debug)]
pub struct NormalizedLoss {
    /// The sum of all losses divided by the number of items: `[]`, float64. 0 without items.
    pub mean: Tensor,
    /// The number of items: `[]`, int64.
    pub items: Tensor,
}

/// A number of items: an unsigned or signed integer, or a tensor with one integer.
///
/// A tensor stays on its device, so that nobody waits for it.
pub trait ItemCount {
    /// The number as a tensor of shape `[]` on `device`.
    ///
    /// # Errors
    /// A tensor with other than one element.
    fn into_count(self, device: Device) -> Result<Tensor>;
}

impl ItemCount for i64 {
    fn into_count(self, device: Device) -> Result<Tensor> {
        Ok(Tensor::from(self).f_to_device(device)?)
    }
}

impl ItemCount for usize {
    fn into_count(self, device: Device) -> Result<Tensor> {
        i64::try_from(self).unwrap_or(i64::MAX).into_count(device)
    }
}

impl ItemCount for Tensor {
    fn into_count(self, device: Device) -> Result<Tensor> {
        (&self).into_count(device)
    }
}

impl ItemCount for &Tensor {
    fn into_count(self, device: Device) -> Result<Tensor> {
        if self.numel() != 1 {
            return Err(Error::Argument {
                operation: "backward_normalized",
                expected: "one number of items".to_owned(),
                found: format!("a tensor of shape {:?}", self.size()),
            });
        }
        Ok(self.f_detach()?.f_reshape([0i64; 0])?.f_to_device(device)?)
    }
}

/// Sums of losses and items since gradients were last complete, for each set of models.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    /// `[losses, items]` in float64, which counts exactly up to 2^53.
    sums: RefCell<HashMap<Vec<ModelId>, Tensor>>,
}

impl Tallies {
    pub(super) fn add(&self, set: &[ModelId], loss_sum: &Tensor, items: &Tensor) -> Result<()> {
        let both = tch::no_grad(|| {
            let loss = loss_sum
                .f_detach()?
                .f_to_kind(Kind::Double)?
                .f_reshape([1])?;
            let items = items.f_to_kind(Kind::Double)?.f_reshape([1])?;
            Tensor::f_cat(&[loss, items], 0)
        })?;
        let mut sums = self.sums.borrow_mut();
        match sums.get_mut(set) {
            Some(sum) => drop(tch::no_grad(|| sum.f_add_(&both))?),
            None => drop(sums.insert(set.to_vec(), both)),
        }
        Ok(())
    }

    /// Divides the gradients of `models` by the number of items of all ranks.
    pub(super) fn finish(
        &self,
        set: &[ModelId],
        models: &[ModelGradients],
        group: Option<&ProcessGroup>,
    ) -> Result<Option<NormalizedLoss>> {
        let Some(sums) = self.sums.borrow_mut().remove(set) else {
            return Ok(None);
        };
        let mut ranks = 1;
        if let Some(group) = group {
            group.all_reduce(&sums, ReduceOp::Sum)?;
            ranks = i64::try_from(group.size()).unwrap_or(i64::MAX);
        }
        tch::no_grad(|| {
            let items = sums.f_select(0, 1)?;
            // Without items all sums and gradients are zero, and stay so.
            let divisor = items.f_clamp_min(1.0)?;
            // Ranks took the mean of their gradients; the sum is meant.
            let factor = divisor.f_reciprocal()?.f_mul_scalar(ranks)?;
            for model in models {
                multiply(model.parameters(), &factor)?;
            }
            Ok(Some(NormalizedLoss {
                mean: sums.f_select(0, 0)?.f_div(&divisor)?,
                items: items.f_to_kind(Kind::Int64)?,
            }))
        })
    }

    /// Forgets every sum.
    pub(crate) fn clear(&self) {
        self.sums.borrow_mut().clear();
    }
}

/// Multiplies the gradients of `parameters` by a factor, kept in float64.
fn multiply(parameters: &[Tensor], factor: &Tensor) -> Result<()> {
    let mut alike: Vec<((Device, Kind), Vec<Tensor>)> = Vec::new();
    for parameter in parameters {
        let Some(gradient) = autograd::grad(parameter)? else {
            continue;
        };
        let key = (gradient.device(), gradient.f_kind()?);
        match alike.iter_mut().find(|(other, _)| *other == key) {
            Some((_, list)) => list.push(gradient),
            None => alike.push((key, vec![gradient])),
        }
    }
    for ((device, kind), gradients) in alike {
        // Half-sized gradients still get a factor of full precision.
        let kind = match kind {
            Kind::Double => Kind::Double,
            _ => Kind::Float,
        };
        let factor = factor.f_to_device(device)?.f_to_kind(kind)?;
        foreach::mul_(&gradients, &factor)?;
    }
    Ok(())
}
