mod batches;
mod documentation;
mod files;
mod mistakes;
mod named;

use std::num::{NonZeroU32, NonZeroUsize};

use super::*;
use crate::{
    MixedPrecision,
    parallel::{GivenOptimizer, GivenScheduler, JobFacts, ParallelPlan, PlanError, PrepareFacts},
    settings::{Origin, Sourced},
};

fn size(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

fn steps(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn job(world: usize) -> JobFacts {
    JobFacts::on_one_machine(size(world))
}

fn precision(value: MixedPrecision) -> Sourced<MixedPrecision> {
    match value {
        MixedPrecision::No => Sourced::default_value(value),
        other => Sourced {
            value: other,
            origin: Origin::Flag("--mixed_precision".to_owned()),
        },
    }
}

fn json(text: &str) -> DeepSpeedSettings {
    DeepSpeedSettings::with_config(ConfigSource::Text(text.to_owned()))
}

fn resolved(text: &str) -> DeepSpeedConfig {
    json(text).resolve(&precision(MixedPrecision::No)).unwrap()
}

/// A model of hidden size 768, a loader with batches of 16, stand-ins for optimizer and schedule.
fn facts() -> PrepareFacts {
    PrepareFacts {
        hidden_sizes: vec![768],
        batch_sizes: vec![Some(size(16))],
        accumulation: steps(4),
        optimizer: GivenOptimizer::Dummy {
            lr: 5e-4,
            weight_decay: 0.01,
        },
        scheduler: GivenScheduler::Dummy {
            total_num_steps: Some(101),
            warmup_num_steps: 10,
            has_callable: false,
        },
        ..PrepareFacts::default()
    }
}

/// The same with an optimizer of the program.
fn own() -> PrepareFacts {
    PrepareFacts {
        optimizer: GivenOptimizer::Real { lr: 1e-3 },
        scheduler: GivenScheduler::Nothing,
        ..facts()
    }
}

fn plan_of(text: &str, world: usize) -> Result<ParallelPlan, PlanError> {
    let config = json(text).resolve(&precision(MixedPrecision::No))?;
    Ok(config.prepare(&job(world), &own())?.plan)
}
