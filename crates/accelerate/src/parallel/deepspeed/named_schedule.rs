use std::num::NonZeroU64;

use accelerate_plan::parallel::deepspeed::{
    NamedScheduler, SchedulerKind, Warmup, WarmupGrowth as Growth,
};

use super::refused::refused;
use super::torch_schedule;
use crate::Result;
use crate::optim::{
    LRRangeTest, LRRangeTestConfig, OneCycle, OneCycleConfig, Optimizer, Scheduler, WarmupConfig,
    WarmupCosineConfig, WarmupCosineLR, WarmupDecayLR, WarmupGrowth, WarmupLR,
};

/// What the config may name.
const KNOWN: &str = "`WarmupLR`, `WarmupDecayLR`, `WarmupCosineLR`, `OneCycle` or `LRRangeTest`";

/// Makes the schedule that the config names, for `optimizer`.
///
/// # Errors
/// [`Error::Sharding`](crate::Error::Sharding) for one that this library does not have, with those that
/// it has, and for a cycle or interval without steps.
///
/// # Source
/// `DeepSpeedEngine._scheduler_from_config`, which takes schedules of PyTorch by name too. Differs:
/// those of PyTorch that this library does not have, or that need functions, are refused.
pub(super) fn build(
    named: &NamedScheduler,
    optimizer: &dyn Optimizer,
) -> Result<Box<dyn Scheduler>> {
    let steps = |key: &str, steps: u64| {
        NonZeroU64::new(steps).ok_or_else(|| {
            let key = format!("scheduler.params.{key}");
            refused(key, "0", "a number of steps, at least 1", &named.origin)
        })
    };
    Ok(match named.kind {
        SchedulerKind::Warmup(warmup) => Box::new(WarmupLR::new(optimizer, config(warmup))),
        SchedulerKind::WarmupDecay {
            warmup,
            total_num_steps,
        } => Box::new(WarmupDecayLR::new(
            optimizer,
            total_num_steps,
            config(warmup),
        )),
        SchedulerKind::WarmupCosine {
            warmup_min_ratio,
            warmup_num_steps,
            growth,
            cos_min_ratio,
            total_num_steps,
        } => Box::new(WarmupCosineLR::new(
            optimizer,
            total_num_steps,
            WarmupCosineConfig {
                warmup_min_ratio,
                warmup_num_steps: at_least_one(warmup_num_steps),
                cos_min_ratio,
                warmup_type: grows(growth),
            },
        )),
        SchedulerKind::OneCycle {
            min_lr,
            max_lr,
            first_step_size,
            second_step_size,
            decay_step_size,
            decay_lr_rate,
            cycle_momentum,
            min_momentum,
            max_momentum,
            decay_mom_rate,
        } => Box::new(OneCycle::new(
            optimizer,
            OneCycleConfig {
                decay_lr_rate,
                cycle_first_step_size: steps("cycle_first_step_size", first_step_size)?,
                cycle_second_step_size: Some(steps("cycle_second_step_size", second_step_size)?),
                decay_step_size,
                cycle_momentum: cycle_momentum.then_some((min_momentum, max_momentum)),
                decay_mom_rate,
                ..OneCycleConfig::new(min_lr, max_lr)
            },
        )),
        SchedulerKind::LrRangeTest {
            min_lr,
            step_size,
            step_rate,
            staircase,
        } => Box::new(LRRangeTest::new(
            optimizer,
            LRRangeTestConfig {
                lr_range_test_min_lr: min_lr,
                lr_range_test_step_size: steps("lr_range_test_step_size", step_size)?,
                lr_range_test_step_rate: step_rate,
                lr_range_test_staircase: staircase,
            },
        )),
        SchedulerKind::Other { ref params } => {
            let made = torch_schedule::build(named, params, optimizer)?;
            made.ok_or_else(|| {
                let torch = torch_schedule::KNOWN;
                let expected =
                    format!("a schedule that this library has: {KNOWN}, or of PyTorch {torch}");
                refused("scheduler.type", &*named.name, expected, &named.origin)
            })?
        }
    })
}

fn config(warmup: Warmup) -> WarmupConfig {
    WarmupConfig {
        warmup_min_lr: warmup.min_lr,
        warmup_max_lr: warmup.max_lr,
        warmup_num_steps: at_least_one(warmup.num_steps),
        warmup_type: grows(warmup.growth),
    }
}

fn at_least_one(steps: u64) -> NonZeroU64 {
    NonZeroU64::new(steps).unwrap_or(NonZeroU64::MIN)
}

fn grows(growth: Growth) -> WarmupGrowth {
    match growth {
        Growth::Log => WarmupGrowth::Log,
        Growth::Linear => WarmupGrowth::Linear,
    }
}
