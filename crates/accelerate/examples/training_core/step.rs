//! What a step costs beside the kernel: a model of 1,000 small tensors is all overhead.

use accelerate::optim::{AdamW, AdamWConfig, Optimizer, Scheduler, cosine_schedule_with_warmup};
use accelerate::{Accelerator, Result};
use accelerate_torch::autograd;
use accelerate_torch::fused::{self, AdamState, AdamStep, GradScale};
use tch::{Device, Kind, Tensor};

use super::measures::{Measures, median_of};
use super::workload::small_parameters;

const TENSORS: usize = 1_000;
const ROUNDS: usize = 200;

/// The prepared optimizer and schedule, and the kernel by itself.
pub(crate) fn run(accelerator: &Accelerator, measures: &mut Measures) -> Result<()> {
    let kernel = kernel()?;
    measures.time("kernel_s", kernel);
    let (parameters, gradients) = small_parameters(TENSORS)?;
    let own: Vec<Tensor> = parameters.iter().map(Tensor::shallow_clone).collect();
    let optimizer = AdamW::new(own, AdamWConfig::default())?;
    let schedule = cosine_schedule_with_warmup(&optimizer, 10, 100_000, 0.5);
    let (mut optimizer, mut schedule) = accelerator.prepare((optimizer, schedule))?;
    let step = median_of(
        ROUNDS,
        || {
            let mut pairs = parameters.iter().zip(&gradients);
            pairs.try_for_each(|(one, gradient)| Ok(autograd::set_grad(one, Some(gradient))?))
        },
        || {
            optimizer.step()?;
            schedule.step()?;
            optimizer.zero_grad()
        },
    )?;
    measures.time("step_s", step);
    measures.time("step_overhead_s", step - kernel);
    measures.check(
        "weight",
        f64::from(parameters[0].f_double_value(&[0])? as f32),
    );
    let alone = median_of(ROUNDS, || Ok(()), || schedule.step())?;
    measures.time("schedule_s", alone);
    Ok(())
}

/// The fused kernel over lists that are ready.
fn kernel() -> Result<f64> {
    let (parameters, gradients) = small_parameters(TENSORS)?;
    let zeros = || -> Result<Vec<Tensor>> {
        gradients
            .iter()
            .map(|one| Ok(one.f_zeros_like()?))
            .collect()
    };
    let (averages, squares) = (zeros()?, zeros()?);
    let steps = Tensor::f_ones([TENSORS as i64], (Kind::Float, Device::Cpu))?.f_unbind(0)?;
    let state = AdamState {
        exp_avgs: &averages,
        exp_avg_sqs: &squares,
        max_exp_avg_sqs: &[],
        steps: &steps,
    };
    let numbers = AdamStep {
        lr: 1e-3,
        beta1: 0.9,
        beta2: 0.999,
        weight_decay: 1e-2,
        eps: 1e-8,
        amsgrad: false,
        maximize: false,
    };
    median_of(
        ROUNDS,
        || Ok(()),
        || {
            let unscaled = GradScale::default();
            Ok(fused::adamw(
                &parameters,
                &gradients,
                state,
                &numbers,
                unscaled,
            )?)
        },
    )
}
