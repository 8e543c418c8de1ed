//! How much is sent, counted by the system, and what becomes of numbers that travel as integers.
#![cfg(target_os = "linux")]

use std::fs;
use std::time::Duration;

use accelerate::nn::{Forward, Module};
use accelerate::optim::{AdamW, AdamWConfig, Optimizer};
use accelerate::{Accelerator, Result};
use accelerate_plan::parallel::{AfterForward, ParallelPlan, Quantised, Recompute, Sharded};
use accelerate_testkit::{Rank, ranks, ranks_within};
use tch::{Device, Kind, Tensor};

use crate::job::{Setup, by_class, compare, count, plan, trained};
use crate::memory::deep;

const WIDTH: i64 = 64;
const BLOCKS: usize = 5;
const STEPS: usize = 4;

/// Bytes that this process wrote.
fn written() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.unwrap().trim().parse().unwrap()
}

/// What is done between two counts.
#[derive(Debug, Clone, Copy)]
struct Work {
    steps: usize,
    /// Batches of each step.
    accumulation: usize,
    /// Evaluations behind each step.
    evaluations: usize,
}

/// How many bytes a step of `work` sends, once all units and their order are known.
fn sent(plan: ParallelPlan, work: Work) -> Result<f64> {
    let accelerator = Accelerator::builder()
        .cpu(true)
        .gradient_accumulation_steps(count(work.accumulation))
        .parallel_plan(plan)
        .build()?;
    let model = deep(WIDTH, BLOCKS)?;
    let parameters: Vec<Tensor> = model
        .parameters()
        .into_iter()
        .map(|parameter| parameter.tensor().shallow_clone())
        .collect();
    let optimizer = AdamW::new(parameters, AdamWConfig::default())?;
    let (model, mut optimizer) = accelerator.prepare((model, optimizer))?;
    let input = || Tensor::f_ones([4, WIDTH], (Kind::Float, Device::Cpu));
    let mut step = || -> Result<()> {
        for _ in 0..work.accumulation {
            let _step = accelerator.accumulate(&model)?;
            let loss = model.call(input()?)?.f_square()?.f_mean(Kind::Float)?;
            accelerator.backward(&loss)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
        }
        for _ in 0..work.evaluations {
            let _output = tch::no_grad(|| model.call(input()?))?;
        }
        Ok(())
    };
    step()?;
    step()?;
    let before = written();
    (0..work.steps).try_for_each(|_| step())?;
    let sent = written() - before;
    Ok(sent as f64 / work.steps as f64)
}

/// The bytes of one shard of a block, whose parts begin at multiples of 64 elements.
fn shard(rank: Rank) -> f64 {
    let whole = (2 * 4 * WIDTH * WIDTH + 5 * WIDTH) as usize;
    (whole.div_ceil(rank.world()).next_multiple_of(64) * 4) as f64
}

/// Numbers are sent as expected, and little else: heads of messages, and what ranks agree about.
fn check(what: &str, expected: f64, found: f64) {
    let most = expected * 1.02 + 4000.0;
    assert!(
        (expected..most).contains(&found),
        "{what}: {found:.0} bytes a step, not {expected:.0}"
    );
}

#[test]
fn a_step_sends_what_the_theory_says() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let (blocks, others) = (BLOCKS as f64, rank.world() as f64 - 1.0);
        let unit = shard(rank) * others;
        let work = Work {
            steps: STEPS,
            accumulation: 1,
            evaluations: 0,
        };
        for sharded in [Sharded::OptimizerState, Sharded::Gradients] {
            let plan = plan(rank, sharded, by_class());
            let what = format!("{sharded:?}");
            check(&what, 2.0 * blocks * unit, sent(plan.clone(), work)?);
            // Parameters change with a step only, and gradients are added up before they are sent.
            let more = Work {
                accumulation: 3,
                evaluations: 2,
                ..work
            };
            check(&what, 2.0 * blocks * unit, sent(plan, more)?);
        }
        // Of the last unit the backward pass begins, so it stays whole.
        let mut plan = plan(rank, Sharded::Parameters, by_class());
        let expected = (3.0 * blocks - 1.0) * unit;
        check("Parameters", expected, sent(plan.clone(), work)?);
        // The gather of the backward pass is that of the second forward pass too.
        plan.recompute = Recompute::Units;
        check("computed again", expected, sent(plan, work)?);
        Ok(())
    });
}

#[test]
fn integers_send_less() {
    ranks(&[2], |rank| -> Result<()> {
        let work = Work {
            steps: STEPS,
            accumulation: 1,
            evaluations: 0,
        };
        let blocks = BLOCKS as f64;
        let elements = shard(rank) / 4.0;
        let groups = (elements / 1024.0).ceil();
        let (eight, four) = (groups * 1028.0, groups * 516.0);
        let mut plan = plan(rank, Sharded::Parameters, by_class());
        plan.weights = Quantised::Int8;
        let gathers = 2.0 * blocks - 1.0;
        let expected = gathers * eight + blocks * shard(rank);
        check("weights", expected, sent(plan.clone(), work)?);
        plan.reduction.gradients = Quantised::Int4;
        let expected = gathers * eight + blocks * four;
        check("weights and gradients", expected, sent(plan, work)?);
        Ok(())
    });
}

#[test]
fn second_shards_change_nothing() {
    ranks(&[2], |rank| -> Result<()> {
        let setup = Setup {
            steps: 5,
            frozen: true,
            accumulation: 2,
            ..Setup::default()
        };
        let mut by_plan = plan(rank, Sharded::Parameters, by_class());
        let whole = trained(rank, &setup.by(by_plan.clone()))?;
        by_plan.after_forward = AfterForward::ReleaseTo(count(2));
        compare(&whole, &trained(rank, &setup.by(by_plan))?, None, "second");
        Ok(())
    });
}

/// Four ranks as two machines of two.
#[test]
fn machines_gather_among_themselves_and_add_up_first() {
    ranks_within(Duration::from_secs(120), &[4], |rank| -> Result<()> {
        let setup = Setup {
            steps: 6,
            ..Setup::default()
        };
        let mut by_plan = plan(rank, Sharded::Parameters, by_class());
        let whole = trained(rank, &setup.by(by_plan.clone()))?;
        by_plan.after_forward = AfterForward::ReleaseTo(count(2));
        let second = trained(rank, &setup.by(by_plan.clone()))?;
        compare(&whole, &second, None, "second");
        by_plan.reduction.gradients = Quantised::Int8;
        by_plan.weights = Quantised::Int8;
        let found = trained(rank, &setup.by(by_plan))?;
        assert_ne!(whole.losses, found.losses);
        for (expected, found) in whole.losses.iter().zip(&found.losses) {
            assert!((expected - found).abs() < 0.1, "{found}, not {expected}");
        }
        Ok(())
    });
}

#[test]
fn integers_train_nearly_the_same() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let setup = Setup {
            steps: 20,
            ..Setup::default()
        };
        let whole = trained(rank, &setup.by(plan(rank, Sharded::Parameters, by_class())))?;
        for (weights, gradients, most) in [
            (Quantised::Int8, Quantised::No, 0.1),
            (Quantised::No, Quantised::Int8, 0.1),
            (Quantised::Int8, Quantised::Int4, 0.3),
        ] {
            let mut by_plan = plan(rank, Sharded::Parameters, by_class());
            by_plan.weights = weights;
            by_plan.reduction.gradients = gradients;
            let found = trained(rank, &setup.by(by_plan))?;
            assert_ne!(whole.losses, found.losses, "{weights:?} {gradients:?}");
            for (expected, found) in whole.losses.iter().zip(&found.losses) {
                let apart = (expected - found).abs();
                assert!(
                    apart < most,
                    "{weights:?} {gradients:?}: {found}, not {expected}"
                );
            }
        }
        Ok(())
    });
}
