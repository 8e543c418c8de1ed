//! What `accelerate launch` tells its processes is done.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use accelerate::nn::Module;
use accelerate::{DistributedType, Result};
use accelerate_plan::parallel::{ParallelPlan, Sharded};
use accelerate_testkit::{Rank, start_ranks};

use crate::job::{Job, Setup, compare, count};

const PART: &str = "SHARDED_ENVIRONMENT_PART";

fn number(name: &str) -> usize {
    std::env::var(name).unwrap().parse().unwrap()
}

/// The part that runs as a rank, with the launcher's variables.
#[test]
fn rank_with_settings() {
    let Ok(part) = std::env::var(PART) else {
        return;
    };
    check(&part, Rank::new(number("RANK"), number("WORLD_SIZE"), 0)).unwrap();
}

fn check(part: &str, rank: Rank) -> Result<()> {
    let setup = Setup {
        steps: 5,
        ..Setup::default()
    };
    let mut whole = setup.by(ParallelPlan::replicated(count(rank.world())));
    whole.max_norm = (part == "deepspeed").then_some(0.3);
    let whole = Job::new(rank, &whole)?.train(setup.steps)?;
    let mut job = Job::new(rank, &setup)?;
    let plan = job.accelerator.parallel_plan().unwrap();
    let units = job.model.sharded().map(|sharded| sharded.units().len());
    let kind = match part {
        "no shards" => DistributedType::MultiCpu,
        "deepspeed" => DistributedType::DeepSpeed,
        _ => DistributedType::Fsdp,
    };
    assert_eq!(job.accelerator.distributed_type(), kind);
    match part {
        "fsdp" => assert_eq!((plan.sharded, units), (Sharded::Parameters, Some(4))),
        "fsdp by size" => assert_eq!((plan.sharded, units), (Sharded::Gradients, Some(4))),
        "no shards" => assert_eq!((plan.sharded, units), (Sharded::Nothing, None)),
        // The blocks stand in a list of their like.
        _ => assert_eq!((plan.sharded, units), (Sharded::Parameters, Some(4))),
    }
    let found = job.train(setup.steps)?;
    // DeepSpeed's plan clips by itself, by a norm whose last digits are others.
    let tolerance = (part == "deepspeed").then_some(2e-5);
    compare(&whole, &found, tolerance, part);
    assert!(job.model.num_parameters() > 0);
    job.accelerator.end_training()
}

fn run(part: &str, settings: &[(&str, &str)]) {
    let outputs = start_ranks(2, Duration::from_secs(60), |rank| {
        let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| PathBuf::new()));
        command
            .args(["--exact", "environment::rank_with_settings", "--nocapture"])
            .envs(rank.environment())
            .envs(settings.iter().copied())
            .env(PART, part);
        command
    });
    for output in outputs.unwrap() {
        let fine = output.status.is_some_and(|status| status.success());
        assert!(fine, "{part}: {}", output.text);
    }
}

#[test]
fn fsdp_flags_shard() {
    run(
        "fsdp",
        &[
            ("ACCELERATE_USE_FSDP", "true"),
            ("FSDP_SHARDING_STRATEGY", "FULL_SHARD"),
            ("FSDP_AUTO_WRAP_POLICY", "TRANSFORMER_BASED_WRAP"),
            ("FSDP_TRANSFORMER_CLS_TO_WRAP", "Block"),
            ("FSDP_BACKWARD_PREFETCH", "BACKWARD_PRE"),
            // They are in CPU memory anyway.
            ("FSDP_OFFLOAD_PARAMS", "true"),
        ],
    );
    run(
        "fsdp by size",
        &[
            ("ACCELERATE_USE_FSDP", "true"),
            ("FSDP_SHARDING_STRATEGY", "2"),
            ("FSDP_AUTO_WRAP_POLICY", "SIZE_BASED_WRAP"),
            ("FSDP_MIN_NUM_PARAMS", "4000"),
        ],
    );
    run(
        "no shards",
        &[
            ("ACCELERATE_USE_FSDP", "true"),
            ("FSDP_SHARDING_STRATEGY", "NO_SHARD"),
        ],
    );
}

#[test]
fn deepspeed_flags_shard() {
    run(
        "deepspeed",
        &[
            ("ACCELERATE_USE_DEEPSPEED", "true"),
            ("ACCELERATE_DEEPSPEED_ZERO_STAGE", "3"),
            ("ACCELERATE_GRADIENT_CLIPPING", "0.3"),
        ],
    );
}
