//! The optimizer steps that libtorch has as one kernel over all parameters.

use std::ptr;

use tch::Tensor;

use crate::status::{check, raw_list, raw_or_null};
use crate::{Error, Result, ffi};

/// The numbers of one Adam or AdamW step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamStep {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Weight decay: of the weights for [`adamw`], added to the gradient for [`adam`].
    pub weight_decay: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Whether the largest second moment so far is used.
    pub amsgrad: bool,
    /// Whether to climb instead of to descend.
    pub maximize: bool,
}

/// What Adam keeps for the parameters, list by list, in the order of the parameters.
#[derive(Debug, Clone, Copy)]
pub struct AdamState<'a> {
    /// First moments.
    pub exp_avgs: &'a [Tensor],
    /// Second moments.
    pub exp_avg_sqs: &'a [Tensor],
    /// Largest second moments; empty without `amsgrad`.
    pub max_exp_avg_sqs: &'a [Tensor],
    /// Number of this step, as a float32 scalar for each parameter.
    pub steps: &'a [Tensor],
}

/// A factor that gradients carry, and whether one of them is not finite; both 0-dim float32.
#[derive(Debug, Clone, Copy, Default)]
pub struct GradScale<'a> {
    /// What the gradients are divided by.
    pub scale: Option<&'a Tensor>,
    /// The step does nothing where this is 1.
    pub found_inf: Option<&'a Tensor>,
}

/// One AdamW step in place.
///
/// All tensors of a list have one dtype and device. Not recorded by autograd.
///
/// # Errors
/// [`Error::Argument`] if the lists differ in length; otherwise what libtorch refuses.
pub fn adamw(
    params: &[Tensor],
    grads: &[Tensor],
    state: AdamState<'_>,
    step: &AdamStep,
    scale: GradScale<'_>,
) -> Result<()> {
    run_adam("fused AdamW", params, grads, state, step, scale, true)
}

/// One Adam step in place, with weight decay added to the gradient.
///
/// # Errors
/// As [`adamw`].
pub fn adam(
    params: &[Tensor],
    grads: &[Tensor],
    state: AdamState<'_>,
    step: &AdamStep,
    scale: GradScale<'_>,
) -> Result<()> {
    run_adam("fused Adam", params, grads, state, step, scale, false)
}

fn run_adam(
    operation: &'static str,
    params: &[Tensor],
    grads: &[Tensor],
    state: AdamState<'_>,
    step: &AdamStep,
    scale: GradScale<'_>,
    decoupled: bool,
) -> Result<()> {
    let max_length = if step.amsgrad {
        params.len()
    } else {
        state.max_exp_avg_sqs.len()
    };
    same_length(
        operation,
        params.len(),
        &[
            grads.len(),
            state.exp_avgs.len(),
            state.exp_avg_sqs.len(),
            state.steps.len(),
        ],
    )?;
    same_length(operation, max_length, &[state.max_exp_avg_sqs.len()])?;
    let max = if step.amsgrad {
        raw_list(state.max_exp_avg_sqs)
    } else {
        Vec::new()
    };
    let numbers = ffi::AdamStep {
        lr: step.lr,
        beta1: step.beta1,
        beta2: step.beta2,
        weight_decay: step.weight_decay,
        eps: step.eps,
        amsgrad: step.amsgrad,
        maximize: step.maximize,
        decoupled,
    };
    // SAFETY: every list has the length that is passed (checked above) and its tensors are borrowed
    // for the call; `max` is read only with amsgrad.
    unsafe {
        check(
            operation,
            ffi::acc_fused_adam(
                raw_list(params).as_ptr(),
                raw_list(grads).as_ptr(),
                raw_list(state.exp_avgs).as_ptr(),
                raw_list(state.exp_avg_sqs).as_ptr(),
                max.as_ptr(),
                raw_list(state.steps).as_ptr(),
                params.len(),
                ptr::from_ref(&numbers),
                raw_or_null(scale.scale),
                raw_or_null(scale.found_inf),
            ),
        )
    }
}

/// The numbers of one SGD step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdStep {
    /// Learning rate.
    pub lr: f64,
    /// How much of the last update is kept; 0 for none.
    pub momentum: f64,
    /// How much of the gradient the momentum leaves out.
    pub dampening: f64,
    /// Added to the gradient, times the weight.
    pub weight_decay: f64,
    /// Whether momentum looks ahead.
    pub nesterov: bool,
    /// Whether to climb instead of to descend.
    pub maximize: bool,
    /// Whether the momentum buffers are new and get the gradient itself.
    pub first_step: bool,
}

/// One SGD step in place; `momentum_buffers` is empty without momentum.
///
/// # Errors
/// [`Error::Argument`] if the lists differ in length; otherwise what libtorch refuses.
pub fn sgd(
    params: &[Tensor],
    grads: &[Tensor],
    momentum_buffers: &[Tensor],
    step: &SgdStep,
    scale: GradScale<'_>,
) -> Result<()> {
    let operation = "fused SGD";
    same_length(operation, params.len(), &[grads.len()])?;
    if step.momentum != 0.0 {
        same_length(operation, params.len(), &[momentum_buffers.len()])?;
    }
    let numbers = ffi::SgdStep {
        lr: step.lr,
        momentum: step.momentum,
        dampening: step.dampening,
        weight_decay: step.weight_decay,
        nesterov: step.nesterov,
        maximize: step.maximize,
        first_step: step.first_step,
    };
    // SAFETY: every list that is read has the length that is passed (checked above) and its tensors
    // are borrowed for the call.
    unsafe {
        check(
            operation,
            ffi::acc_fused_sgd(
                raw_list(params).as_ptr(),
                raw_list(grads).as_ptr(),
                raw_list(momentum_buffers).as_ptr(),
                params.len(),
                ptr::from_ref(&numbers),
                raw_or_null(scale.scale),
                raw_or_null(scale.found_inf),
            ),
        )
    }
}

/// The numbers of one Adagrad step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdagradStep {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the learning rate with the steps.
    pub lr_decay: f64,
    /// Added to the gradient, times the weight.
    pub weight_decay: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Whether to climb instead of to descend.
    pub maximize: bool,
}

/// One Adagrad step in place; `steps` as for [`AdamState`].
///
/// # Errors
/// [`Error::Argument`] if the lists differ in length; otherwise what libtorch refuses.
pub fn adagrad(
    params: &[Tensor],
    grads: &[Tensor],
    sums: &[Tensor],
    steps: &[Tensor],
    step: &AdagradStep,
    scale: GradScale<'_>,
) -> Result<()> {
    let operation = "fused Adagrad";
    same_length(
        operation,
        params.len(),
        &[grads.len(), sums.len(), steps.len()],
    )?;
    // SAFETY: as for `sgd`.
    unsafe {
        check(
            operation,
            ffi::acc_fused_adagrad(
                raw_list(params).as_ptr(),
                raw_list(grads).as_ptr(),
                raw_list(sums).as_ptr(),
                raw_list(steps).as_ptr(),
                params.len(),
                step.lr,
                step.lr_decay,
                step.weight_decay,
                step.eps,
                step.maximize,
                raw_or_null(scale.scale),
                raw_or_null(scale.found_inf),
            ),
        )
    }
}

pub(crate) fn same_length(operation: &'static str, expected: usize, found: &[usize]) -> Result<()> {
    match found.iter().find(|&&length| length != expected) {
        None => Ok(()),
        Some(length) => Err(Error::Argument {
            operation,
            expected: format!("lists of {expected} tensors"),
            found: format!("a list of {length}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind};

    const STEP: AdamStep = AdamStep {
        lr: 0.1,
        beta1: 0.9,
        beta2: 0.999,
        weight_decay: 0.0,
        eps: 1e-8,
        amsgrad: false,
        maximize: false,
    };

    #[test]
    fn the_first_adam_step_moves_by_the_learning_rate() -> Result<()> {
        let zeros = || Tensor::f_zeros([2], (Kind::Float, Device::Cpu));
        let params = [Tensor::from_slice(&[1f32, 1.0])];
        let grads = [Tensor::from_slice(&[0.5f32, -3.0])];
        let (first, second) = ([zeros()?], [zeros()?]);
        let steps = [Tensor::from(1f32)];
        let state = AdamState {
            exp_avgs: &first,
            exp_avg_sqs: &second,
            max_exp_avg_sqs: &[],
            steps: &steps,
        };
        adamw(&params, &grads, state, &STEP, GradScale::default())?;
        let moved = Vec::<f32>::try_from(&params[0])?;
        assert!(
            (moved[0] - 0.9).abs() < 1e-6 && (moved[1] - 1.1).abs() < 1e-6,
            "{moved:?}"
        );
        assert!((first[0].double_value(&[0]) - 0.05).abs() < 1e-7);
        Ok(())
    }

    #[test]
    fn a_gradient_that_is_not_finite_stops_the_step() -> Result<()> {
        let params = [Tensor::from_slice(&[1f32])];
        let grads = [Tensor::from_slice(&[2f32])];
        let step = SgdStep {
            lr: 1.0,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
            first_step: false,
        };
        let (scale, one, zero) = (Tensor::from(4f32), Tensor::from(1f32), Tensor::from(0f32));
        let with = |found_inf| GradScale {
            scale: Some(&scale),
            found_inf: Some(found_inf),
        };
        sgd(&params, &grads, &[], &step, with(&one))?;
        assert_eq!(params[0].double_value(&[0]), 1.0);
        sgd(&params, &grads, &[], &step, with(&zero))?;
        assert_eq!(params[0].double_value(&[0]), 0.5);
        Ok(())
    }

    #[test]
    fn adagrad_divides_by_the_root_of_the_sum() -> Result<()> {
        let params = [Tensor::from_slice(&[1f32])];
        let grads = [Tensor::from_slice(&[2f32])];
        let sums = [Tensor::from_slice(&[0f32])];
        let step = AdagradStep {
            lr: 0.5,
            lr_decay: 0.0,
            weight_decay: 0.0,
            eps: 1e-10,
            maximize: false,
        };
        adagrad(
            &params,
            &grads,
            &sums,
            &[Tensor::from(1f32)],
            &step,
            GradScale::default(),
        )?;
        assert_eq!(sums[0].double_value(&[0]), 4.0);
        assert!((params[0].double_value(&[0]) - 0.5).abs() < 1e-6);
        Ok(())
    }

    #[test]
    fn lists_of_different_length_are_refused() {
        let state = AdamState {
            exp_avgs: &[],
            exp_avg_sqs: &[],
            max_exp_avg_sqs: &[],
            steps: &[],
        };
        let params = [Tensor::from_slice(&[1f32])];
        let error = adamw(&params, &[], state, &STEP, GradScale::default()).unwrap_err();
        assert!(error.to_string().contains("lists of 1 tensors"), "{error}");
    }
}
