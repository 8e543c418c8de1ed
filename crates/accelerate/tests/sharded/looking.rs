//! Looking at a model in shards: evaluation, whole parameters, weights by name.

use accelerate::checkpoint::{LoadOptions, SaveModelOptions, save_model};
use accelerate::nn::{Forward, Module, init_empty_weights};
use accelerate::optim::Optimizer;
use accelerate::{Accelerator, Error, PreparedModel, Result};
use accelerate_plan::parallel::{NoSync, Sharded, WrapPolicy};
use accelerate_testkit::{Rank, ranks};
use accelerate_torch::autograd;
use tch::{Kind, Tensor};

use crate::job::{Job, Model, Setup, adamw, batch, by_class, compare, loss, model, plan, trained};

type Weights = Vec<(String, Tensor)>;

const STAGES: [Sharded; 3] = [
    Sharded::OptimizerState,
    Sharded::Gradients,
    Sharded::Parameters,
];

fn evaluated(rank: Rank, setup: &Setup) -> Result<(Vec<f64>, Weights)> {
    let mut job = Job::new(rank, setup)?;
    let mut found = Vec::new();
    for step in 0..4 {
        job.train(1)?;
        job.model.train(false);
        let loss = tch::no_grad(|| loss(&job.model, &batch(100 + step, rank)))?;
        found.push(loss.double_value(&[]));
        job.model.train(true);
    }
    Ok((found, job.weights()?))
}

#[test]
fn evaluation_between_steps_sees_the_newest_weights() {
    ranks(&[2], |rank| -> Result<()> {
        let setup = Setup::default();
        let whole = evaluated(rank, &setup)?;
        for sharded in STAGES {
            let found = evaluated(rank, &setup.by(plan(rank, sharded, by_class())))?;
            assert_eq!(whole, found, "{sharded:?}");
        }
        Ok(())
    });
}

#[test]
fn passes_may_come_between_a_forward_pass_and_its_backward_pass() {
    ranks(&[2], |rank| -> Result<()> {
        let train = |setup: &Setup| -> Result<Weights> {
            let mut job = Job::new(rank, setup)?;
            for step in 0..3 {
                let first = loss(&job.model, &batch(step, rank))?;
                // Another with gradients, and one without.
                let second = loss(&job.model, &batch(10 + step, rank))?;
                let _ = tch::no_grad(|| loss(&job.model, &batch(20 + step, rank)))?;
                job.accelerator.backward(&first.f_add(&second)?)?;
                job.step()?;
            }
            job.weights()
        };
        let setup = Setup::default();
        let whole = train(&setup)?;
        for sharded in STAGES {
            let found = train(&setup.by(plan(rank, sharded, by_class())))?;
            for ((name, expected), (_, found)) in whole.iter().zip(&found) {
                // A unit that is used twice is reduced in two parts.
                let apart = (expected - found).abs().max().double_value(&[]);
                assert!(apart < 2e-5, "{sharded:?}: {name}: {apart:e}");
            }
        }
        Ok(())
    });
}

#[test]
fn between_steps_a_rank_has_its_part_of_everything() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let setup = Setup::default().by(plan(rank, Sharded::Parameters, by_class()));
        let mut job = Job::new(rank, &setup)?;
        let whole: usize = model(&setup)?.num_parameters();
        let own = job.model.num_parameters();
        // Shards begin at multiples of 64, so that they are not equal to the last element.
        assert!(own <= whole / rank.world() + 64 * 16, "{own} of {whole}");
        job.accelerator
            .backward(&loss(&job.model, &batch(0, rank))?)?;
        for parameter in job.model.parameters() {
            let gradient = autograd::grad(parameter.tensor())?.unwrap();
            assert_eq!(gradient.size(), parameter.shape());
        }
        assert_eq!(job.model.num_parameters(), own);
        let sharded = job.model.sharded().unwrap();
        assert_eq!(sharded.units(), ["", "blocks.0", "blocks.1", "blocks.2"]);
        job.step()
    });
}

#[test]
fn whole_parameters_can_be_changed() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let setup = Setup::default().by(plan(rank, Sharded::Parameters, by_class()));
        let mut job = Job::new(rank, &setup)?;
        job.train(2)?;
        let before = job.weights()?;
        let double = |keep: bool| {
            job.model.with_whole_parameters(keep, |model| {
                for parameter in model.parameters() {
                    let mut tensor = parameter.tensor().shallow_clone();
                    let _ = tch::no_grad(|| tensor.f_mul_scalar_(2.0))?;
                }
                Ok(())
            })
        };
        double(false)?;
        assert_eq!(job.weights()?, before);
        double(true)?;
        for ((_, before), (name, after)) in before.iter().zip(&job.weights()?) {
            assert_eq!(before * 2.0, *after, "{name}");
        }
        // The model computes inside, and calls inside of calls are told.
        job.model.with_whole_parameters(false, |model| {
            let value = tch::no_grad(|| loss(model, &batch(0, rank)))?;
            assert!(value.double_value(&[]).is_finite());
            let again = job.model.with_whole_parameters(false, |_| Ok(()));
            assert!(matches!(again, Err(Error::Argument { .. })));
            Ok(())
        })?;
        // What fails inside changes nothing.
        let after = job.weights()?;
        let failed = job.model.with_whole_parameters(true, |model| {
            let mut tensor = model.head.weight.tensor().shallow_clone();
            let _ = tch::no_grad(|| tensor.f_zero_())?;
            Err::<(), _>(Error::data("not today"))
        });
        assert!(failed.is_err());
        assert_eq!(job.weights()?, after);
        Ok(())
    });
}

#[test]
fn gradients_stay_where_parameters_are_looked_at() {
    ranks(&[2], |rank| -> Result<()> {
        let train = |looks: bool| -> Result<Weights> {
            let setup = Setup::default().by(plan(rank, Sharded::Parameters, by_class()));
            let mut job = Job::new(rank, &setup)?;
            for step in 0..3 {
                job.accelerator
                    .backward(&loss(&job.model, &batch(step, rank))?)?;
                if looks {
                    job.weights()?;
                    let _ = tch::no_grad(|| loss(&job.model, &batch(50, rank)))?;
                }
                job.step()?;
            }
            job.weights()
        };
        assert_eq!(train(false)?, train(true)?);
        Ok(())
    });
}

#[test]
fn gradients_may_be_dropped_between_a_forward_pass_and_its_backward_pass() {
    ranks(&[2], |rank| -> Result<()> {
        let train = |setup: &Setup, looks: bool| -> Result<Weights> {
            let mut job = Job::new(rank, setup)?;
            for step in 0..3 {
                let value = loss(&job.model, &batch(step, rank))?;
                job.optimizer.zero_grad()?;
                job.accelerator.backward(&value)?;
                if looks {
                    // With a graph, from which nothing comes.
                    let _value = loss(&job.model, &batch(50, rank))?;
                }
                job.optimizer.step()?;
            }
            job.weights()
        };
        let setup = Setup::default();
        let whole = train(&setup, false)?;
        for sharded in STAGES {
            let by_plan = setup.by(plan(rank, sharded, by_class()));
            assert_eq!(whole, train(&by_plan, false)?, "{sharded:?}");
            assert_eq!(whole, train(&by_plan, true)?, "{sharded:?}");
        }
        Ok(())
    });
}

#[test]
fn nothing_is_left_of_a_backward_pass_that_failed() {
    ranks(&[2], |rank| -> Result<()> {
        let train = |fails: bool| -> Result<Weights> {
            let setup = Setup::default().by(plan(rank, Sharded::Parameters, by_class()));
            let mut job = Job::new(rank, &setup)?;
            if fails {
                let mut is_first = true;
                // It is the last to get its gradient.
                let embedding = job.model.embedding.weight.tensor();
                let fail = move |_: &Tensor| match std::mem::take(&mut is_first) {
                    true => Err("not today".into()),
                    false => Ok(()),
                };
                let _stays = autograd::on_gradient_accumulated(embedding, fail)?;
                let value = loss(&job.model, &batch(9, rank))?;
                assert!(job.accelerator.backward(&value).is_err());
                job.optimizer.zero_grad()?;
            }
            for step in 0..2 {
                let value = loss(&job.model, &batch(step, rank))?;
                job.accelerator.backward(&value)?;
                job.step()?;
            }
            job.weights()
        };
        assert_eq!(train(false)?, train(true)?);
        Ok(())
    });
}

#[test]
fn units_that_the_last_pass_does_not_use_keep_their_gradients() {
    ranks(&[2], |rank| -> Result<()> {
        let norm = |no_sync: NoSync| -> Result<f64> {
            let mut plan = plan(rank, Sharded::Parameters, by_class());
            plan.reduction.no_sync = no_sync;
            let mut job = Job::new(rank, &Setup::default().by(plan))?;
            let local = job.accelerator.no_sync(&job.model);
            let value = loss(&job.model, &batch(0, rank))?;
            job.accelerator.backward(&value)?;
            drop(local);
            let input = Tensor::f_ones([2, 32], (Kind::Float, tch::Device::Cpu))?;
            let part = job.model.blocks[0].call(input)?.f_sum(Kind::Float)?;
            job.accelerator.backward(&part)?;
            let norm = job
                .accelerator
                .clip_grad_norm(job.model.parameters(), 1e9)?;
            job.step()?;
            Ok(norm.unwrap().double_value(&[]))
        };
        let (whole, shards) = (norm(NoSync::Whole)?, norm(NoSync::Shards)?);
        assert!((whole / shards - 1.0).abs() < 1e-5, "{whole}, not {shards}");
        Ok(())
    });
}

#[test]
fn weights_by_name_are_whole_on_the_main_process() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let setup = Setup {
            steps: 2,
            tied: true,
            ..Setup::default()
        };
        let setup = setup.by(plan(rank, Sharded::Parameters, WrapPolicy::Root));
        let mut job = Job::new(rank, &setup)?;
        let weights = job.train(2)?.weights;
        let state = job.accelerator.get_state_dict(&*job.model)?;
        if rank.index() > 0 {
            assert!(state.is_empty());
            return Ok(());
        }
        for (name, weight) in &weights {
            assert_eq!(&state[name], weight, "{name}");
        }
        // Tied weights have both names.
        assert_eq!(state["head.weight"], state["embedding.weight"]);
        assert_eq!(state.len(), weights.len() + 1);
        Ok(())
    });
}

#[test]
fn a_process_by_itself_trains_the_whole_model() {
    ranks(&[1], |rank| -> Result<()> {
        let setup = Setup {
            steps: 3,
            ..Setup::default()
        };
        let by_plan = setup.by(plan(rank, Sharded::Parameters, by_class()));
        let job = Job::new(rank, &by_plan)?;
        assert!(job.model.sharded().is_none());
        assert_eq!(job.model.head.weight.tensor().kind(), Kind::Float);
        compare(
            &trained(rank, &setup)?,
            &trained(rank, &by_plan)?,
            None,
            "alone",
        );
        Ok(())
    });
}

/// Copies of the whole weights.
fn weights(model: &PreparedModel<Model>) -> Result<Weights> {
    model.with_whole_parameters(false, |model| {
        let own = model.named_parameters().into_iter();
        own.map(|(name, one)| Ok((name, one.tensor().f_detach_copy()?)))
            .collect()
    })
}

#[test]
fn a_model_without_memory_gets_its_parts_from_files() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let setup = Setup {
            steps: 3,
            tied: true,
            frozen: true,
            ..Setup::default()
        };
        let by_plan = setup.by(plan(rank, Sharded::Parameters, by_class()));
        let expected = trained(rank, &by_plan)?;
        let folder = tempfile::tempdir().unwrap();
        save_model(&model(&setup)?, folder.path(), &SaveModelOptions::default())?;

        let accelerator = Accelerator::builder()
            .cpu(true)
            .parallel_plan(by_plan.plan.unwrap())
            .build()?;
        let empty = init_empty_weights(|| model(&setup))?;
        let early = accelerator.prepare(adamw(&empty)?).map(|_| ()).unwrap_err();
        assert!(early.to_string().contains("without memory"), "{early}");
        let model = accelerator.prepare(empty)?;
        let unset = loss(&model, &batch(0, rank)).unwrap_err();
        assert!(matches!(unset, Error::OnMeta { .. }), "{unset}");
        let report = model.load_checkpoint(folder.path(), &LoadOptions::strict())?;
        assert!(report.fits());
        let mut optimizer = accelerator.prepare(adamw(&model)?)?;
        for number in 0..setup.steps {
            accelerator.backward(&loss(&model, &batch(number, rank))?)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
        }
        assert_eq!(weights(&model)?, expected.weights);
        Ok(())
    });
}

#[test]
fn ranks_without_memory_get_rank_0s_values() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let setup = Setup {
            tied: true,
            ..Setup::default()
        };
        let accelerator = Accelerator::builder()
            .cpu(true)
            .parallel_plan(plan(rank, Sharded::Parameters, by_class()))
            .build()?;
        let expected = model(&setup)?;
        let own = match rank.index() {
            0 => model(&setup)?,
            _ => init_empty_weights(|| model(&setup))?,
        };
        let found = weights(&accelerator.prepare(own)?)?;
        for ((name, one), (_, found)) in expected.named_parameters().into_iter().zip(&found) {
            assert_eq!(one.tensor(), found, "{name}");
        }
        Ok(())
    });
}

#[test]
fn a_model_that_is_only_evaluated_is_in_shards_too() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let setup = Setup::default();
        let whole = model(&setup)?;
        whole.set_requires_grad(false)?;
        let accelerator = Accelerator::builder()
            .cpu(true)
            .parallel_plan(plan(rank, Sharded::Parameters, by_class()))
            .build()?;
        let own = model(&setup)?;
        own.set_requires_grad(false)?;
        let own = accelerator.prepare_for_evaluation(own)?;
        assert!(own.num_parameters() < whole.num_parameters());
        for number in 0..3 {
            // With and without recording: there is nothing to record.
            let ids = batch(number, rank);
            let expected = loss(&whole, &ids)?;
            assert_eq!(loss(&own, &ids)?, expected);
            assert_eq!(tch::no_grad(|| loss(&own, &ids))?, expected);
        }
        assert!(own.num_parameters() < whole.num_parameters());
        Ok(())
    });
}
