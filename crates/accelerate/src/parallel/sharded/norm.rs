//! The norm of gradients of which each rank has a part.

use std::collections::HashSet;
use std::rc::Rc;

use accelerate_torch::{ReduceOp, storage};
use tch::{Kind, Tensor};

use super::model::ShardedModel;
use crate::collectives::Site;
use crate::gradient_clipping::local_norm;
use crate::{Error, Result};

/// The norm of the gradients of `parameters`, taken over all of them and all ranks together.
///
/// Each rank takes the norm of its parts; their powers are added up in float64. The order of that sum
/// is another than on one process, so the last digits of float32 can be others too.
///
/// # Collective
/// Every rank calls this with the same parameters.
///
/// # Errors
/// [`Error::Argument`] for an order that is not above zero.
pub(crate) fn total_norm(
    models: &[Rc<ShardedModel>],
    parameters: &[Tensor],
    order: f64,
) -> Result<Tensor> {
    let Some(first) = models.first() else {
        return local_norm(parameters, order);
    };
    if order <= 0.0 {
        return Err(Error::Argument {
            operation: "clip_grad_norm",
            expected: "an order of the norm above 0 for a model in shards".to_owned(),
            found: order.to_string(),
        });
    }
    let sharded = identities(models);
    let (parts, whole): (Vec<Tensor>, Vec<Tensor>) = parameters
        .iter()
        .map(Tensor::shallow_clone)
        .partition(|parameter| sharded.contains(&storage::identity(parameter)));
    // A rank may have nothing of them; its answer is of the others' type and place all the same.
    let like = parameters.first().map(|one| (one.device(), one.f_kind()));
    let (parts, whole) = (local_norm(&parts, order)?, local_norm(&whole, order)?);
    let (device, kind) = match like {
        Some((device, kind)) => (device, kind?),
        None => (parts.device(), parts.f_kind()?),
    };
    let (parts, whole) = (parts.f_to_device(device)?, whole.f_to_device(device)?);
    let site = Site::Model(first.class);
    let norm = first.state.counted("gradient norm", site, |_| {
        tch::no_grad(|| joined(first, &parts, &whole, order))
    })?;
    Ok(norm.f_to_kind(kind)?)
}

fn joined(model: &ShardedModel, parts: &Tensor, whole: &Tensor, order: f64) -> Result<Tensor> {
    let group = &model.engine.groups.gather;
    let whole = whole.f_to_kind(Kind::Double)?;
    let parts = parts.f_to_kind(Kind::Double)?;
    if order.is_infinite() {
        let largest = parts.f_maximum(&whole)?;
        group.all_reduce(&largest, ReduceOp::Max)?;
        return Ok(largest);
    }
    let power = parts.f_pow_tensor_scalar(order)?;
    group.all_reduce(&power, ReduceOp::Sum)?;
    let all = power.f_add(&whole.f_pow_tensor_scalar(order)?)?;
    Ok(all.f_pow_tensor_scalar(1.0 / order)?)
}

fn identities(models: &[Rc<ShardedModel>]) -> HashSet<usize> {
    let mut found = HashSet::new();
    for model in models {
        let state = model.engine.lock();
        found.extend(
            state
                .members()
                .map(|member| storage::identity(&member.parameter)),
        );
    }
    found
}
