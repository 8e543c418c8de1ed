//! What one rank does otherwise leaves no other waiting.

use std::cell::RefCell;
use std::fs;
use std::rc::Rc;

use accelerate::Result;
use accelerate::nn::{Forward, Hook, Module};
use accelerate::tree::{Tree, leaves};
use accelerate_plan::parallel::{NoSync, ParallelPlan, Sharded};
use accelerate_plan::settings::BackwardPrefetch;
use accelerate_testkit::ranks;
use accelerate_torch::autograd;
use tch::{Device, Kind, Tensor};

use crate::job::{Job, Setup, batch, by_class, loss, plan};

type Weights = Vec<(String, Tensor)>;

/// The weights that are not the same, each with how far apart they are.
fn differences(expected: &Weights, found: &Weights) -> Result<Vec<String>> {
    let mut differ = Vec::new();
    for ((name, expected), (_, found)) in expected.iter().zip(found) {
        if expected != found {
            let apart = expected
                .f_sub(found)?
                .f_abs()?
                .f_max()?
                .f_double_value(&[])?;
            differ.push(format!("`{name}` by {apart:e}"));
        }
    }
    Ok(differ)
}

/// A loss that has nothing to do with the model.
fn other_loss() -> Result<Tensor> {
    let other = Tensor::f_ones([3], (Kind::Float, Device::Cpu))?.f_set_requires_grad(true)?;
    Ok(other.f_square()?.f_sum(Kind::Float)?)
}

#[test]
fn a_rank_whose_loss_does_not_touch_the_model_brings_zeros() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let train = |plan: ParallelPlan, touches: bool| -> Result<Weights> {
            let mut job = Job::new(rank, &Setup::default().by(plan))?;
            for step in 0..4 {
                let value = loss(&job.model, &batch(step, rank))?;
                // The last rank stays away every other time.
                let value = match step % 2 == 0 && rank.index() + 1 == rank.world() {
                    true if touches => value.f_mul_scalar(0.0)?,
                    true => other_loss()?,
                    false => value,
                };
                job.accelerator.backward(&value)?;
                job.step()?;
            }
            // Nobody touches it: nothing comes of that either.
            let before = job.weights()?;
            job.accelerator.backward(&other_loss()?)?;
            job.step()?;
            assert_eq!(before, job.weights()?);
            Ok(before)
        };
        let mut plans: Vec<ParallelPlan> = [
            Sharded::OptimizerState,
            Sharded::Gradients,
            Sharded::Parameters,
        ]
        .map(|sharded| plan(rank, sharded, by_class()))
        .to_vec();
        let mut alone = plan(rank, Sharded::Parameters, by_class());
        alone.keeps_root = false;
        plans.push(alone);
        for plan in plans {
            let what = plan.sharded;
            let differ = differences(&train(plan.clone(), true)?, &train(plan, false)?)?;
            assert!(differ.is_empty(), "{what:?}: {differ:?}");
        }
        Ok(())
    });
}

/// Keeps what its module computed.
#[derive(Default)]
struct Keep(RefCell<Option<Tensor>>);

impl Hook for Keep {
    fn after_forward(&self, _module: &dyn Module, output: &mut dyn Tree) -> Result<()> {
        *self.0.borrow_mut() = leaves(output)?.pop();
        Ok(())
    }
}

#[test]
fn a_rank_whose_loss_leaves_units_out_brings_zeros_for_them() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let train = |plan: ParallelPlan, touches: bool| -> Result<Weights> {
            let mut job = Job::new(rank, &Setup::default().by(plan))?;
            let keep = Rc::new(Keep::default());
            let _stays = job.model.blocks[1].add_hook(Rc::<Keep>::clone(&keep))?;
            for step in 0..4 {
                let whole = loss(&job.model, &batch(step, rank))?;
                let part = keep.0.borrow_mut().take().unwrap();
                let part = part.f_square()?.f_mean(Kind::Float)?;
                let is_odd = (step + rank.index()) % 2 == 1;
                let value = match is_odd {
                    true if touches => part.f_add(&whole.f_mul_scalar(0.0)?)?,
                    true => part,
                    false => whole,
                };
                job.accelerator.backward(&value)?;
                job.step()?;
            }
            job.weights()
        };
        for backward in [BackwardPrefetch::BackwardPre, BackwardPrefetch::NoPrefetch] {
            for sharded in [Sharded::Gradients, Sharded::Parameters] {
                let mut plan = plan(rank, sharded, by_class());
                plan.prefetch.backward = backward;
                let expected = train(plan.clone(), true)?;
                let differ = differences(&expected, &train(plan, false)?)?;
                assert!(differ.is_empty(), "{sharded:?} {backward:?}: {differ:?}");
            }
        }
        Ok(())
    });
}

#[test]
fn ranks_that_use_other_units_all_fail() {
    ranks(&[2], |rank| -> Result<()> {
        let setup = Setup::default().by(plan(rank, Sharded::Gradients, by_class()));
        let job = Job::new(rank, &setup)?;
        // From here on everything is whole.
        let _value = tch::no_grad(|| loss(&job.model, &batch(0, rank)))?;
        let value = match rank.index() {
            0 => loss(&job.model, &batch(0, rank))?,
            _ => {
                let input = Tensor::f_ones([2, 32], (Kind::Float, Device::Cpu))?;
                job.model.blocks[0].call(input)?.f_sum(Kind::Float)?
            }
        };
        let error = job.accelerator.backward(&value).unwrap_err();
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            text.push_str(&inner.to_string());
            cause = inner.source();
        }
        assert!(text.contains("the same units in the same order"), "{text}");
        job.accelerator.wait_for_everyone()
    });
}

#[test]
fn a_backward_pass_inside_of_whole_parameters_is_refused() {
    ranks(&[2], |rank| -> Result<()> {
        let train = |tries: bool| -> Result<Weights> {
            let setup = Setup::default().by(plan(rank, Sharded::Parameters, by_class()));
            let mut job = Job::new(rank, &setup)?;
            for step in 0..3 {
                let value = loss(&job.model, &batch(step, rank))?;
                job.accelerator.backward(&value)?;
                if tries {
                    job.model.with_whole_parameters(false, |model| {
                        let value = loss(model, &batch(9, rank))?;
                        assert!(job.accelerator.backward(&value).is_err());
                        Ok(())
                    })?;
                    for parameter in job.model.parameters() {
                        let gradient = autograd::grad(parameter.tensor())?.unwrap();
                        assert_eq!(gradient.size(), parameter.shape());
                    }
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
fn both_parts_of_a_gradient_are_saved() {
    ranks(&[2], |rank| -> Result<()> {
        let folder = std::env::temp_dir().join(format!("shards-{}", rank.port()));
        let norm = |saves: bool, no_sync: NoSync| -> Result<f64> {
            let mut plan = plan(rank, Sharded::Parameters, by_class());
            plan.reduction.no_sync = no_sync;
            let setup = Setup {
                accumulation: 2,
                ..Setup::default()
            };
            let job = Job::new(rank, &setup.by(plan))?;
            let pass = |number: usize| -> Result<()> {
                let _step = job.accelerator.accumulate(&job.model)?;
                let value = loss(&job.model, &batch(number, rank))?;
                job.accelerator.backward(&value)
            };
            // Behind the second, gradients are shards; the third adds whole ones beside them.
            (0..3).try_for_each(pass)?;
            if saves {
                job.accelerator.save_state(Some(&folder))?;
                job.accelerator.load_state(Some(&folder))?;
            }
            pass(3)?;
            let parameters = job.model.parameters();
            let norm = job.accelerator.clip_grad_norm(parameters, 1e9)?;
            Ok(norm.unwrap().double_value(&[]))
        };
        let expected = norm(false, NoSync::Whole)?;
        let found = norm(true, NoSync::Whole)?;
        assert_eq!(expected, found);
        // What is added up in shards at once is the same but for the order.
        let shards = norm(false, NoSync::Shards)?;
        assert!((expected / shards - 1.0).abs() < 1e-5, "{shards}");
        if rank.index() == 0 {
            fs::remove_dir_all(&folder).unwrap();
        }
        Ok(())
    });
}
