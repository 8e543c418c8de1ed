//! Shards of float32 under a model that computes in 16 bits.

use accelerate::Result;
use accelerate::nn::Module;
use accelerate::precision::MixedPrecision;
use accelerate_plan::parallel::{Cast, FloatType, ParallelPlan, Sharded};
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
        let first = whole.losses[0];
        for sharded in [Sharded::Gradients, Sharded::Parameters] {
            let found = trained(rank, &setup.by(bf16(rank, sharded)))?;
            for (expected, found) in whole.losses.iter().zip(&found.losses) {
                assert!((expected - found).abs() < 0.05, "{found}, not {expected}");
            }
            assert!(found.losses.last().unwrap() < &first);
        }
        Ok(())
    });
}
