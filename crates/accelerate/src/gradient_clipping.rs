//! Limits on the size of gradients.

use accelerate_torch::{autograd, foreach};
use tch::{Device, Kind, Tensor};

use crate::{Error, Result};

/// How the norm of gradients is taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClipNorm {
    /// The norm's order: 2 for the usual one, infinity for the largest absolute value.
    pub norm_type: f64,
    /// Whether a norm that is not finite is an error.
    pub error_if_nonfinite: bool,
}

impl Default for ClipNorm {
    fn default() -> Self {
        Self {
            norm_type: 2.0,
            error_if_nonfinite: false,
        }
    }
}

/// Scales gradients so that their norm, taken over all of them together, is at most `max_norm`.
///
/// Answers the norm as it was: `[]`, on the first gradient's device; 0 without gradients.
/// While training, call [`Accelerator::clip_grad_norm`](crate::Accelerator::clip_grad_norm),
/// which knows of loss scaling and accumulation.
///
/// # Errors
/// A limit or order that is no number; a norm that is not finite, where that is an error.
/// Gradients are unchanged then.
///
/// # Source
/// `torch.nn.utils.clip_grad_norm_`, by the same kernels.
pub fn clip_grad_norm(parameters: &[Tensor], max_norm: f64, options: ClipNorm) -> Result<Tensor> {
    clip_by(parameters, max_norm, options, |_| {
        local_norm(parameters, options.norm_type)
    })
}

/// As [`clip_grad_norm`], where `norm` knows the norm of an order over everything that counts.
pub(crate) fn clip_by(
    parameters: &[Tensor],
    max_norm: f64,
    options: ClipNorm,
    norm: impl FnOnce(f64) -> Result<Tensor>,
) -> Result<Tensor> {
    check_number("clip_grad_norm", "a limit", max_norm)?;
    check_number("clip_grad_norm", "an order of the norm", options.norm_type)?;
    tch::no_grad(|| {
        let groups = gradients(parameters)?;
        let norm = norm(options.norm_type)?;
        if options.error_if_nonfinite && !norm.f_double_value(&[])?.is_finite() {
            return Err(Error::Argument {
                operation: "clip_grad_norm",
                expected: "gradients whose norm is finite".to_owned(),
                found: format!(
                    "a norm of {}; look for a loss that is not finite",
                    norm.f_double_value(&[])?
                ),
            });
        }
        let factor = norm
            .f_add_scalar(1e-6)?
            .f_reciprocal()?
            .f_mul_scalar(max_norm)?
            .f_clamp_max(1.0)?;
        for ((device, _), list) in &groups {
            foreach::mul_(list, &factor.f_to_device(*device)?)?;
        }
        Ok(norm)
    })
}

/// Limits every value of the gradients to `-limit..=limit`.
///
/// # Errors
/// A limit that is no number.
///
/// # Source
/// `torch.nn.utils.clip_grad_value_`.
pub fn clip_grad_value(parameters: &[Tensor], limit: f64) -> Result<()> {
    check_number("clip_grad_value", "a limit", limit)?;
    for (_, list) in gradients(parameters)? {
        foreach::clamp_(&list, -limit, limit)?;
    }
    Ok(())
}

type Alike = ((Device, Kind), Vec<Tensor>);

/// Gradients by device and kind, in the order in which these appear first.
fn gradients(parameters: &[Tensor]) -> Result<Vec<Alike>> {
    let mut groups: Vec<Alike> = Vec::new();
    for parameter in parameters {
        let Some(gradient) = autograd::grad(parameter)? else {
            continue;
        };
        let key = (gradient.device(), gradient.f_kind()?);
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, list)) => list.push(gradient),
            None => groups.push((key, vec![gradient])),
        }
    }
    Ok(groups)
}

/// The norm of the gradients that this process has.
pub(crate) fn local_norm(parameters: &[Tensor], order: f64) -> Result<Tensor> {
    let mut groups = gradients(parameters)?;
    for (_, list) in &mut groups {
        // Of no numbers there is no largest one.
        list.retain(|gradient| gradient.numel() > 0);
    }
    groups.retain(|(_, list)| !list.is_empty());
    tch::no_grad(|| total_norm(&groups, order))
}

fn total_norm(groups: &[Alike], order: f64) -> Result<Tensor> {
    let Some(((first, _), _)) = groups.first() else {
        return Ok(Tensor::f_zeros([0i64; 0], (Kind::Float, Device::Cpu))?);
    };
    let mut norms = Vec::new();
    for (_, list) in groups {
        for norm in foreach::norm(list, order)? {
            norms.push(norm.f_to_device(*first)?);
        }
    }
    let norms = [Tensor::f_stack(&norms, 0)?];
    foreach::norm(&norms, order)?
        .pop()
        .ok_or_else(|| Error::Argument {
            operation: "clip_grad_norm",
            expected: "one norm of the norms".to_owned(),
            found: "none".to_owned(),
        })
}

fn check_number(operation: &'static str, what: &str, number: f64) -> Result<()> {
    if number.is_nan() {
        return Err(Error::Argument {
            operation,
            expected: what.to_owned(),
            found: "NaN".to_owned(),
        });
    }
    Ok(())
}
