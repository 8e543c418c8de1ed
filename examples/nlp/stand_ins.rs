//! The optimizer and the schedule of the job, or stand-ins for those that a DeepSpeed config names.

use accelerate::optim::{
    AdamW, AdamWConfig, DummyOptim, DummyOptimConfig, DummyScheduler, DummySchedulerConfig,
    Optimizer, Scheduler, linear_schedule_with_warmup,
};
use accelerate::{Accelerator, Result, tch::Tensor};
use accelerate_examples::running::Running;

/// Share of the steps in which the learning rate rises.
const WARMUP: f64 = 0.1;

/// AdamW, unless DeepSpeed's config names an optimizer.
pub(crate) fn optimizer(
    accelerator: &Accelerator,
    parameters: Vec<Tensor>,
    lr: f64,
) -> Result<Box<dyn Optimizer>> {
    let own = AdamWConfig {
        lr,
        ..AdamWConfig::default()
    };
    let config = accelerator.deepspeed_config();
    if config.is_some_and(|config| config.names_optimizer()) {
        let config = DummyOptimConfig {
            lr,
            weight_decay: own.weight_decay,
        };
        return Ok(Box::new(DummyOptim::new(parameters, config)?));
    }
    Ok(Box::new(AdamW::new(parameters, own)?))
}

/// A line up and a line down, unless DeepSpeed's config names a schedule.
///
/// `total` counts steps of the loader before it is prepared.
pub(crate) fn scheduler(
    accelerator: &Accelerator,
    optimizer: &dyn Optimizer,
    running: &Running,
    total: u64,
) -> Box<dyn Scheduler> {
    let config = accelerator.deepspeed_config();
    if config.is_some_and(|config| config.names_scheduler()) {
        // The warm-up of such a schedule counts steps of the optimizer.
        let at_once = match running.split_batches {
            true => 1,
            false => accelerator.num_processes() as u64,
        };
        let config = DummySchedulerConfig {
            total_num_steps: Some(total),
            warmup_num_steps: warmup(total) / at_once,
        };
        return Box::new(DummyScheduler::new(optimizer, config));
    }
    Box::new(linear_schedule_with_warmup(optimizer, warmup(total), total))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a share of a number of steps"
)]
fn warmup(total: u64) -> u64 {
    (total as f64 * WARMUP) as u64
}
