//! What is trained in shards is what is trained whole.

use std::time::Duration;

use accelerate::Result;
use accelerate::nn::Module;
use accelerate_plan::parallel::{
    AfterForward, Mesh, NoSync, ParallelPlan, Sharded, SizeRule, WrapPolicy,
};
use accelerate_plan::settings::BackwardPrefetch;
use accelerate_testkit::{Rank, ranks, ranks_within};
use tch::Kind;

use crate::job::{
    Job, Setup, Trained, adamw, by_class, by_size, compare, count, plan, sgd, trained,
};

/// How far what is trained in shards may be from what is trained whole.
///
/// Of one rank and of two the sum is the same in any order, and half of it is exact: every bit is the
/// same. Of three, data parallelism divides by three before it adds, in the order of a ring, and we
/// after, in the order of ranks; 50 steps of AdamW, which divides by the size of gradients, let that
/// grow from 1e-7.
fn tolerance(rank: Rank) -> Option<f64> {
    (rank.world() > 2).then_some(2e-5)
}

/// Everything that is sharded, with everything that is a unit.
fn plans(rank: Rank) -> Vec<(String, ParallelPlan)> {
    let mut plans = Vec::new();
    for sharded in [
        Sharded::OptimizerState,
        Sharded::Gradients,
        Sharded::Parameters,
    ] {
        for wrap in [WrapPolicy::Root, by_class(), by_size(2000)] {
            let name = format!("{sharded:?} in {wrap:?}");
            plans.push((name, plan(rank, sharded, wrap)));
        }
    }
    plans
}

/// Every stage and every kind of unit once.
fn some_plans(rank: Rank) -> Vec<(String, ParallelPlan)> {
    let all = plans(rank).into_iter();
    all.step_by(4).collect()
}

/// Trains by each plan, and compares with whole models.
fn check(
    rank: Rank,
    setup: &Setup,
    plans: Vec<(String, ParallelPlan)>,
    tolerance: Option<f64>,
) -> Result<()> {
    let whole = trained(rank, setup)?;
    for (name, plan) in plans {
        let found = trained(rank, &setup.by(plan))?;
        compare(&whole, &found, tolerance, &name);
        assert_eq!(whole.norms.len(), found.norms.len(), "{name}");
        for (expected, found) in whole.norms.iter().zip(&found.norms) {
            assert!((expected / found - 1.0).abs() < 1e-5, "{name}: {found}");
        }
    }
    Ok(())
}

#[test]
fn fifty_steps_are_the_same_for_every_stage_and_policy() {
    ranks(&[1, 2, 3], |rank| {
        // Three ranks share two processors here, and one shares nothing: one of each will do.
        let plans = match rank.world() {
            2 => plans(rank),
            _ => some_plans(rank),
        };
        check(rank, &Setup::default(), plans, tolerance(rank))
    });
}

#[test]
fn accumulated_gradients_are_the_same() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let setup = Setup {
            steps: 8,
            accumulation: 3,
            ..Setup::default()
        };
        check(rank, &setup, some_plans(rank), tolerance(rank))
    });
}

#[test]
fn gradients_that_are_exchanged_at_each_batch_add_up_to_the_same() {
    // Sums over ranks and then over batches, where the other has them the other way round.
    ranks(&[2], |rank| -> Result<()> {
        let setup = Setup {
            steps: 8,
            accumulation: 3,
            ..Setup::default()
        };
        let whole = trained(rank, &setup)?;
        let each = Setup {
            sync_each_batch: true,
            ..setup.by(plan(rank, Sharded::Parameters, by_class()))
        };
        compare(&whole, &trained(rank, &each)?, Some(2e-5), "each batch");
        let mut by_plan = plan(rank, Sharded::Gradients, by_class());
        by_plan.reduction.no_sync = NoSync::Shards;
        let found = trained(rank, &setup.by(by_plan))?;
        compare(&whole, &found, Some(2e-5), "each batch by the plan");
        Ok(())
    });
}

#[test]
fn clipping_is_by_the_norm_over_all_ranks() {
    // The squares are added up in another order, so the last digits of the factor differ.
    ranks(&[2, 3], |rank| -> Result<()> {
        let setup = Setup {
            steps: 8,
            max_norm: Some(0.3),
            ..Setup::default()
        };
        check(rank, &setup, some_plans(rank), Some(2e-5))
    });
}

#[test]
fn frozen_and_tied_parameters_are_the_same() {
    ranks(&[2, 3], |rank| -> Result<()> {
        for (tied, frozen) in [(true, false), (false, true), (true, true)] {
            let setup = Setup {
                steps: 6,
                tied,
                frozen,
                ..Setup::default()
            };
            check(rank, &setup, some_plans(rank), tolerance(rank))?;
        }
        Ok(())
    });
}

#[test]
fn sgd_with_momentum_is_the_same() {
    ranks(&[2], |rank| -> Result<()> {
        let train =
            |setup: &Setup| -> Result<Trained> { Job::with(rank, setup, sgd)?.train(setup.steps) };
        let setup = Setup::default();
        let whole = train(&setup)?;
        for (name, plan) in some_plans(rank) {
            compare(&whole, &train(&setup.by(plan))?, None, &name);
        }
        Ok(())
    });
}

#[test]
fn when_units_are_gathered_changes_nothing() {
    ranks(&[2], |rank| -> Result<()> {
        let setup = Setup {
            steps: 5,
            ..Setup::default()
        };
        let whole = trained(rank, &setup)?;
        for backward in [
            BackwardPrefetch::BackwardPre,
            BackwardPrefetch::BackwardPost,
            BackwardPrefetch::NoPrefetch,
        ] {
            for forward in [true, false] {
                for (keeps_root, after) in [
                    (true, AfterForward::Release),
                    (false, AfterForward::Release),
                    (true, AfterForward::Keep),
                ] {
                    let mut plan = plan(rank, Sharded::Parameters, by_class());
                    plan.prefetch.backward = backward;
                    plan.prefetch.forward = forward;
                    plan.keeps_root = keeps_root;
                    plan.after_forward = after;
                    let what = format!("{backward:?} {forward} {keeps_root} {after:?}");
                    compare(&whole, &trained(rank, &setup.by(plan))?, None, &what);
                }
            }
        }
        Ok(())
    });
}

#[test]
fn units_inside_of_units_are_the_same() {
    ranks(&[2], |rank| -> Result<()> {
        let setup = Setup {
            steps: 5,
            frozen: true,
            ..Setup::default()
        };
        let whole = trained(rank, &setup)?;
        let classes = ["Block", "Linear"].map(str::to_owned).to_vec();
        let total = WrapPolicy::Size {
            min_num_params: 2000,
            rule: SizeRule::TotalAbove,
        };
        for wrap in [WrapPolicy::Classes(classes), total, WrapPolicy::ModelBlocks] {
            let what = format!("{wrap:?}");
            let plan = plan(rank, Sharded::Parameters, wrap);
            compare(&whole, &trained(rank, &setup.by(plan))?, None, &what);
        }
        Ok(())
    });
}

#[test]
fn shards_within_and_copies_across_are_the_same() {
    // Four ranks add up two by two, so the sums have another order than a ring's.
    ranks_within(Duration::from_secs(120), &[4], |rank| -> Result<()> {
        let setup = Setup {
            steps: 5,
            max_norm: Some(0.5),
            ..Setup::default()
        };
        let whole = trained(rank, &setup)?;
        for sharded in [Sharded::Gradients, Sharded::Parameters] {
            let mut plan = ParallelPlan::new(Mesh::new(count(2), count(2)), sharded);
            plan.wrap = by_class();
            let found = trained(rank, &setup.by(plan))?;
            compare(&whole, &found, Some(2e-5), "hybrid");
        }
        Ok(())
    });
}

/// The original's reference for C8: the norm is that of all parameters given, however many.
#[test]
fn the_norm_of_a_part_of_the_parameters_is_theirs() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let setup = Setup {
            kind: Kind::Double,
            ..Setup::default()
        };
        let sharded = setup.by(plan(rank, Sharded::Parameters, by_class()));
        let found = |setup: &Setup| -> Result<Vec<f64>> {
            let mut job = Job::with(rank, setup, adamw)?;
            let ids = crate::job::batch(0, rank);
            let loss = crate::job::loss(&job.model, &ids)?;
            job.accelerator.backward(&loss)?;
            let half = job.model.parameters().split_off(4);
            let all = job.model.parameters();
            let mut found = Vec::new();
            // Twice: the second time it is clipped already.
            for limit in [0.05, 0.05] {
                let norm = job.accelerator.clip_grad_norm(half.clone(), limit)?;
                found.push(norm.unwrap().double_value(&[]));
            }
            let norm = job.accelerator.clip_grad_norm(all, 1e9)?;
            found.push(norm.unwrap().double_value(&[]));
            drop(half);
            job.step()?;
            found.extend(
                job.weights()?
                    .iter()
                    .map(|(_, one)| one.sum(Kind::Double).double_value(&[])),
            );
            Ok(found)
        };
        let (expected, found) = (found(&setup)?, found(&sharded)?);
        assert!((expected[1] - 0.05).abs() < 1e-6, "{expected:?}");
        for (expected, found) in expected.iter().zip(&found) {
            assert!((expected - found).abs() < 1e-9, "{found}, not {expected}");
        }
        Ok(())
    });
}
