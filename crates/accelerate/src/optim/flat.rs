use accelerate_torch::foreach;
use accelerate_torch::fused::{self, GradScale, SgdStep};
use tch::Tensor;

use super::cohort::Cohort;
use super::moments::{Lists, split_like};
use crate::Result;

/// The gradients of a cohort as one vector.
///
/// A single gradient shares its memory with the vector, so nothing may be done to it in place.
pub(super) fn gradients(cohort: &Cohort<Lists>) -> Result<Tensor> {
    Ok(Tensor::f_flatten_dense_tensors(&cohort.gradients)?)
}

/// The parameters of a cohort as one vector; see [`gradients`].
pub(super) fn parameters(cohort: &Cohort<Lists>) -> Result<Tensor> {
    Ok(Tensor::f_flatten_dense_tensors(&cohort.parameters)?)
}

/// A number as a tensor that can be multiplied with `like`.
pub(super) fn scalar(value: f64, like: &Tensor) -> Result<Tensor> {
    let options = (like.f_kind()?, like.device());
    Ok(Tensor::f_full([0i64; 0], value, options)?)
}

/// `base + factor * change`, rounded once as libtorch's addition with a factor does.
pub(super) fn add_scaled(base: &Tensor, change: &Tensor, factor: f64) -> Result<Tensor> {
    Ok(base.f_addcmul(change, &scalar(factor, base)?)?)
}

/// Adds `factor` times `change`, a vector over the whole cohort, to the parameters.
pub(super) fn add_to_parameters(
    cohort: &Cohort<Lists>,
    change: &Tensor,
    factor: f64,
) -> Result<()> {
    let pieces = split_like(change, &cohort.parameters)?;
    add_pieces(cohort, &pieces, factor)
}

/// Puts `values`, a vector over the whole cohort, in the place of the parameters.
pub(super) fn set_parameters(cohort: &Cohort<Lists>, values: &Tensor) -> Result<()> {
    // There is no copy for lists of tensors; the sum with zero is one.
    foreach::zero_(&cohort.parameters)?;
    add_to_parameters(cohort, values, 1.0)
}

/// As [`add_to_parameters`], with one piece for each parameter.
pub(super) fn add_pieces(cohort: &Cohort<Lists>, pieces: &[Tensor], factor: f64) -> Result<()> {
    if !cohort.lists.contiguous {
        // The kernel pairs numbers by their place in memory.
        for (parameter, piece) in cohort.parameters.iter().zip(pieces) {
            let factor = scalar(factor, parameter)?;
            let _ = parameter.shallow_clone().f_addcmul_(piece, &factor)?;
        }
        return Ok(());
    }
    // A step of gradient descent is this addition, over all parameters at once.
    let descent = SgdStep {
        lr: factor.abs(),
        momentum: 0.0,
        dampening: 0.0,
        weight_decay: 0.0,
        nesterov: false,
        maximize: factor > 0.0,
        first_step: false,
    };
    Ok(fused::sgd(
        &cohort.parameters,
        pieces,
        &[],
        &descent,
        GradScale::default(),
    )?)
}
