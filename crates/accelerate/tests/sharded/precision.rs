//! Shards of float32 under a model that computes in 16 bits.

use accelerate::Result;
use accelerate::nn::Module;
use accelerate::precision::MixedPrecision;
use accelerate_plan::parallel::{Cast, FloatType, NoSync, ParallelPlan, Sharded};
use accelerate_testkit::{Rank, ranks};
use tch::Kind;

use crate::job::{Job, Setup, batch, by_class, loss, plan, trained};

fn bf16(rank: Rank, sharded: Sharded) -> ParallelPlan {
    let mut plan = plan(rank, sharded, by_class());
    plan.precision.parameters = Cast::To(FloatType::BFloat16);
    plan.precision.reduction = Cast::To(FloatType::BFloat16);
    plan.precision.autocast = Cast::To(FloatType::BFloat16);
    plan.precision.is_master_float32 = true;
    plan
}

#[test]
fn what_is_kept_and_updated_is_float32() {
    ranks(&[2], |rank| -> Result<()> {
        let setup = Setup {
            precision: MixedPrecision::Bf16,
            kind: Kind::BFloat16,
            ..Setup::default()
        };
        let mut job = Job::new(rank, &setup.by(bf16(rank, Sharded::Parameters)))?;
        job.accelerator
            .backward(&loss(&job.model, &batch(0, rank))?)?;
        for parameter in job.model.parameters() {
            assert_eq!(parameter.tensor().kind(), Kind::Float);
            assert_eq!(parameter.tensor().grad().kind(), Kind::Float);
        }
        job.step()?;
        for (name, weight) in job.weights()? {
            assert_eq!(weight.kind(), Kind::Float, "{name}");
        }
        Ok(())
    });
}

#[test]
fn it_trains_as_autocast_does_but_for_rounded_sums() {
    // Weights are rounded to 16 bits once, as autocast does; gradients are added up in 16 bits,
    // where autocast's are float32.
    ranks(&[2], |rank| -> Result<()> {
        let setup = Setup {
            precision: MixedPrecision::Bf16,
            steps: 30,
            ..Setup::default()
        };
        let whole = trained(rank, &setup)?;
        for sharded in [Sharded::Gradients, Sharded::Parameters] {
            let found = trained(rank, &setup.by(bf16(rank, sharded)))?;
            for (expected, found) in whole.losses.iter().zip(&found.losses) {
                assert!((expected - found).abs() < 0.05, "{found}, not {expected}");
            }
            // Not the same: 16 bits are what is sent.
            assert_ne!(whole.losses, found.losses);
        }
        Ok(())
    });
}

#[test]
fn a_unit_that_is_used_twice_stays_until_both_backward_passes_are_over() {
    // Of parameters that change their type each use has a gradient of its own.
    ranks(&[2], |rank| -> Result<()> {
        let norm = |no_sync: NoSync| -> Result<f64> {
            let mut plan = bf16(rank, Sharded::Parameters);
            plan.reduction.no_sync = no_sync;
            let setup = Setup {
                precision: MixedPrecision::Bf16,
                ..Setup::default()
            };
            let job = Job::new(rank, &setup.by(plan))?;
            let local = job.accelerator.no_sync(&job.model);
            let first = loss(&job.model, &batch(0, rank))?;
            let second = loss(&job.model, &batch(1, rank))?;
            job.accelerator.backward(&first.f_add(&second)?)?;
            drop(local);
            let third = loss(&job.model, &batch(2, rank))?;
            job.accelerator.backward(&third)?;
            let norm = job
                .accelerator
                .clip_grad_norm(job.model.parameters(), 1e9)?;
            Ok(norm.unwrap().double_value(&[]))
        };
        let (whole, shards) = (norm(NoSync::Whole)?, norm(NoSync::Shards)?);
        assert!((whole / shards - 1.0).abs() < 0.02, "{whole}, not {shards}");
        Ok(())
    });
}
