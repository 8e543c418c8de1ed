//! The façade on real ranks.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use accelerate::collectives::{Reduction, broadcast};
use accelerate::data::DataLoader;
use accelerate::nn::{Buffer, Factory, Forward, Linear, Module, ModuleState};
use accelerate::optim::{
    AdamW, AdamWConfig, Optimizer, Scheduler, Sgd, SgdConfig, linear_schedule_with_warmup,
};
use accelerate::parallel::{CommHook, DistributedDataParallelKwargs};
use accelerate::{Accelerator, DataLoaderConfiguration, DistributedType, Result};
use accelerate_testkit::{Rank, ranks};
use tch::{Device, Kind, Tensor};

const SOME: [usize; 3] = [1, 2, 3];

fn floats(values: &[f32]) -> Tensor {
    Tensor::from_slice(values)
}

#[test]
fn every_rank_knows_who_it_is() {
    ranks(&SOME, |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        assert_eq!(accelerator.process_index(), rank.index());
        assert_eq!(accelerator.num_processes(), rank.world());
        assert_eq!(accelerator.is_main_process(), rank.index() == 0);
        assert_eq!(
            accelerator.is_last_process(),
            rank.index() + 1 == rank.world()
        );
        let expected = if rank.world() == 1 {
            DistributedType::No
        } else {
            DistributedType::MultiCpu
        };
        assert_eq!(accelerator.distributed_type(), expected);
        assert_eq!(accelerator.device(), Device::Cpu);
        // A second accelerator is in the same job.
        assert_eq!(Accelerator::new()?.process_index(), rank.index());
        accelerator.wait_for_everyone()
    });
}

#[test]
fn values_are_gathered_in_rank_order_through_nested_trees() {
    ranks(&SOME, |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let own = rank.index() as i64;
        let (rows, scalar) = accelerator.gather((
            Tensor::from_slice(&[own, own + 10]).reshape([2, 1]),
            Tensor::from(own),
        ))?;
        let expected: Vec<i64> = (0..rank.world() as i64).flat_map(|r| [r, r + 10]).collect();
        assert_eq!(Vec::<i64>::try_from(rows.flatten(0, -1))?, expected);
        let ranks: Vec<i64> = (0..rank.world() as i64).collect();
        if rank.world() == 1 {
            assert_eq!(scalar.size(), [0i64; 0]);
        } else {
            assert_eq!(Vec::<i64>::try_from(scalar)?, ranks);
        }
        Ok(())
    });
}

#[test]
fn values_are_reduced_and_broadcast() {
    ranks(&SOME, |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let world = rank.world() as f32;
        let own = floats(&[rank.index() as f32, 1.0]);
        let sum: Tensor = accelerator.reduce(&own, Reduction::Sum)?;
        assert_eq!(
            Vec::<f32>::try_from(sum)?,
            [world * (world - 1.0) / 2.0, world]
        );
        let mean: Tensor = accelerator.reduce(&own, Reduction::Mean)?;
        assert_eq!(Vec::<f32>::try_from(mean)?, [(world - 1.0) / 2.0, 1.0]);
        assert_eq!(
            own.double_value(&[0]),
            rank.index() as f64,
            "the input is not changed"
        );
        let last = rank.world() - 1;
        let sent = broadcast(accelerator.state(), own, last)?;
        assert_eq!(sent.double_value(&[0]), last as f64);
        Ok(())
    });
}

#[test]
fn lengths_that_differ_are_padded() {
    ranks(&[2, 3], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let own = Tensor::ones([2, rank.index() as i64 + 1], (Kind::Int64, Device::Cpu));
        let padded: Tensor = accelerator.pad_across_processes(&own, -1, 7.0, false)?;
        assert_eq!(padded.size(), [2, rank.world() as i64]);
        if rank.index() == 0 {
            assert_eq!(padded.int64_value(&[1, 0]), 1);
            assert_eq!(padded.int64_value(&[1, rank.world() as i64 - 1]), 7);
        }
        let unchanged: Tensor = accelerator.pad_across_processes(&own, 5, 0.0, false)?;
        assert_eq!(unchanged.size(), own.size());
        Ok(())
    });
}

#[test]
fn the_main_process_goes_first() {
    // Ranks are other processes: they find the file by the port they have in common.
    ranks(&[2, 3], |rank: Rank| -> Result<()> {
        let state = Accelerator::new()?.state().clone();
        let file = std::env::temp_dir().join(format!("accelerate-first-{}", rank.port()));
        let turn = state.main_process_first()?;
        if state.is_main_process() {
            std::thread::sleep(std::time::Duration::from_millis(50));
            std::fs::write(&file, "done").unwrap();
        } else {
            assert!(file.exists(), "the main process was not first");
        }
        turn.end()?;
        state.wait_for_everyone()?;
        if state.is_main_process() {
            std::fs::remove_file(&file).unwrap();
        }
        Ok(())
    });
}

/// y = 2x + 1, as samples of tensors.
fn samples(count: i64) -> Vec<(f32, f32)> {
    (0..count)
        .map(|i| (i as f32 / count as f32, 2.0 * i as f32 / count as f32 + 1.0))
        .collect()
}

fn loss_of(model: &Linear, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let out = model.call(x.f_to_kind(Kind::Float)?.f_unsqueeze(1)?)?;
    Ok(out
        .f_sub(&y.f_to_kind(Kind::Float)?.f_unsqueeze(1)?)?
        .f_square()?
        .f_mean(Kind::Float)?)
}

fn parameters(module: &dyn Module) -> Vec<Tensor> {
    module
        .parameters()
        .into_iter()
        .map(|one| one.tensor().shallow_clone())
        .collect()
}

fn values(module: &dyn Module) -> Vec<f64> {
    parameters(module)
        .iter()
        .flat_map(|one| {
            Vec::<f64>::try_from(one.detach().flatten(0, -1).to_kind(Kind::Double)).unwrap()
        })
        .collect()
}

/// Trains on one global batch split over ranks; every number of ranks has to end at one point.
fn train(seed: i64, global_batch: usize) -> Result<Vec<f64>> {
    let accelerator = Accelerator::builder()
        .dataloader_config(DataLoaderConfiguration {
            split_batches: true,
            ..Default::default()
        })
        .build()?;
    tch::manual_seed(seed + accelerator.process_index() as i64);
    // Ranks begin with different weights: preparing makes them rank 0's.
    let model = Linear::new(1, 1, &Factory::default())?;
    let optimizer = Sgd::new(parameters(&model), SgdConfig::new(0.1))?;
    let batches = DataLoader::builder(samples(24))
        .batch_size(global_batch)
        .build()?;
    let (model, mut optimizer, batches) = accelerator.prepare((model, optimizer, batches))?;
    for _ in 0..3 {
        for batch in &batches {
            let (x, y) = batch?;
            accelerator.backward(&loss_of(&model, &x, &y)?)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
        }
    }
    Ok(values(&*model))
}

#[test]
fn any_number_of_ranks_learns_the_same_from_the_same_global_batch() {
    // What one process, without any launcher, arrives at; ranks compare with it below.
    let alone: Vec<f64> = {
        tch::manual_seed(3);
        let model = Linear::new(1, 1, &Factory::default()).unwrap();
        let parameters = parameters(&model);
        for _ in 0..3 {
            for start in [0, 12] {
                let part = &samples(24)[start..start + 12];
                let x = floats(&part.iter().map(|s| s.0).collect::<Vec<_>>());
                let y = floats(&part.iter().map(|s| s.1).collect::<Vec<_>>());
                loss_of(&model, &x, &y).unwrap().backward();
                tch::no_grad(|| {
                    for parameter in &parameters {
                        let mut parameter = parameter.shallow_clone();
                        let step = parameter.grad() * -0.1;
                        let _ = parameter.g_add_(&step);
                        parameter.zero_grad();
                    }
                });
            }
        }
        values(&model)
    };
    ranks(&SOME, move |_| -> Result<()> {
        let found = train(3, 12)?;
        for (found, alone) in found.iter().zip(&alone) {
            assert!((found - alone).abs() < 1e-6, "{found} {alone}");
        }
        Ok(())
    });
}

#[test]
fn gradients_are_the_average_over_ranks_however_they_travel() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        for (comm_hook, tolerance) in [
            (CommHook::No, 0.0),
            (CommHook::Fp16, 1e-3),
            (CommHook::Bf16, 1e-2),
        ] {
            for gradient_as_bucket_view in [false, true] {
                let ddp = DistributedDataParallelKwargs {
                    comm_hook: comm_hook.clone(),
                    gradient_as_bucket_view,
                    ..Default::default()
                };
                average(rank, &ddp, tolerance)?;
            }
        }
        Ok(())
    });
}

/// The example of PyTorch's documentation: inputs 1 and 3, loss = w * x.
fn average(rank: Rank, ddp: &DistributedDataParallelKwargs, tolerance: f64) -> Result<()> {
    let accelerator = Accelerator::builder().ddp(ddp.clone()).build()?;
    let model = accelerator.prepare(Linear::new(1, 1, &Factory::default())?)?;
    let x = if rank.index() == 0 { 1f32 } else { 3.0 };
    for expected in [2.0, 4.0] {
        let out = model.call(floats(&[x]).unsqueeze(1))?;
        accelerator.backward(&out.f_sum(Kind::Float)?)?;
        let gradient = parameters(&*model)[0].grad().double_value(&[0, 0]);
        assert!(
            (gradient - expected).abs() <= tolerance * expected,
            "{ddp:?}: {gradient}"
        );
    }
    Ok(())
}

#[derive(Debug, Module)]
struct TwoHeads {
    body: Linear,
    left: Linear,
    right: Linear,
    seen: Buffer,
    state: ModuleState,
}

impl TwoHeads {
    fn new() -> Result<Self> {
        let factory = Factory::default();
        Ok(Self {
            body: Linear::new(2, 4, &factory)?,
            left: Linear::new(4, 1, &factory)?,
            right: Linear::new(4, 1, &factory)?,
            seen: Buffer::new(Tensor::zeros([1], (Kind::Float, Device::Cpu))),
            state: ModuleState::default(),
        })
    }
}

impl Forward for TwoHeads {
    type Input = (Tensor, bool);
    type Output = (Tensor, Tensor);

    /// One head is used, or both.
    fn forward(&self, (x, both): (Tensor, bool)) -> Result<(Tensor, Tensor)> {
        let body = self.body.call(&x)?;
        let left = self.left.call(&body)?;
        let right = if both {
            self.right.call(&body)?
        } else {
            left.shallow_clone()
        };
        Ok((left, right))
    }
}

#[test]
fn a_parameter_without_gradient_is_named_unless_they_are_looked_for() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        // Without buffers to copy, a pass that reduces nothing needs no other rank.
        let ddp = DistributedDataParallelKwargs {
            broadcast_buffers: false,
            ..Default::default()
        };
        let accelerator = Accelerator::builder().ddp(ddp).build()?;
        let model = accelerator.prepare(TwoHeads::new()?)?;
        let x = Tensor::ones([1, 2], (Kind::Float, Device::Cpu));
        let step = |both: bool| -> Result<()> {
            let (left, right) = model.call((&x, both))?;
            accelerator.backward(&left.f_add(&right)?.f_sum(Kind::Float)?)
        };
        // Rank 1 leaves a head out; its reduction never finishes, and the next pass says so.
        if rank.index() == 1 {
            step(false)?;
            let error = step(true).unwrap_err().to_string();
            assert!(
                error.contains("right.weight") && error.contains("right.bias"),
                "{error}"
            );
            assert!(!error.contains("left"), "{error}");
        }
        Ok(())
    });
}

#[test]
fn unused_parameters_are_found_also_behind_outputs_that_the_loss_ignores() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let ddp = DistributedDataParallelKwargs {
            find_unused_parameters: true,
            ..Default::default()
        };
        let accelerator = Accelerator::builder().ddp(ddp).build()?;
        let model = accelerator.prepare(TwoHeads::new()?)?;
        let x = Tensor::ones([1, 2], (Kind::Float, Device::Cpu));
        for step in 0..3 {
            // Both heads compute in one step, but the loss takes only the left one.
            let (left, _right) = model.call((&x, rank.index() == 0 || step == 1))?;
            accelerator.backward(&left.f_sum(Kind::Float)?)?;
            let gradients: Tensor =
                accelerator.gather(&parameters(&*model)[0].grad().f_flatten(0, -1)?)?;
            let halves = gradients.chunk(2, 0);
            assert!(halves[0].equal(&halves[1]), "step {step}");
        }
        Ok(())
    });
}

#[test]
fn buffers_are_those_of_rank_0() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let model = accelerator.prepare(TwoHeads::new()?)?;
        let _ = model
            .seen
            .tensor()
            .shallow_clone()
            .fill_(rank.index() as f64 + 5.0);
        let _ = model.call((&Tensor::ones([1, 2], (Kind::Float, Device::Cpu)), true))?;
        assert_eq!(model.seen.tensor().double_value(&[0]), 5.0);
        Ok(())
    });
}

#[test]
fn a_model_without_anything_to_train_is_refused() {
    ranks(&[2], |_| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let model = Linear::new(1, 1, &Factory::default())?;
        model.set_requires_grad(false)?;
        let error = accelerator.prepare(model.clone()).unwrap_err().to_string();
        assert!(
            error.contains("`Linear` has no parameter that requires a gradient"),
            "{error}"
        );
        accelerator.prepare_for_evaluation(model).map(drop)
    });
}

#[test]
fn models_that_differ_over_ranks_are_refused() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let model = Linear::new(rank.index() as i64 + 1, 1, &Factory::default())?;
        assert!(accelerator.prepare(model).is_err());
        Ok(())
    });
}

#[test]
fn a_shape_that_differs_is_named_in_debug_mode() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let overlay = [("ACCELERATE_DEBUG_MODE", "true".to_owned())];
        let pairs = rank.environment().into_iter().chain(overlay);
        let state = accelerate::PartialState::from_environment(
            &accelerate_plan::env::Environment::from_pairs(pairs),
            &Default::default(),
        )?;
        // The store of rank 0 is there for the others until all are through.
        std::mem::forget(state.clone());
        let own = Tensor::ones([1, rank.index() as i64 + 4], (Kind::Float, Device::Cpu));
        let error = accelerate::collectives::gather(&state, own)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("Process 0: [1, 4] Float") && error.contains("Process 1: [1, 5] Float"),
            "{error}"
        );
        Ok(())
    });
}

#[test]
fn metrics_see_every_sample_once() {
    ranks(&SOME, |rank: Rank| -> Result<()> {
        for (count, batch) in [(7, 2), (9, 5), (12, 2), (1, 3), (10, 4)] {
            let accelerator = Accelerator::new()?;
            let loader = DataLoader::builder((0..count).collect::<Vec<i64>>())
                .batch_size(batch)
                .num_workers(1)
                .build()?;
            let loader = accelerator.prepare(loader)?;
            let mut seen = Vec::new();
            for ids in &loader {
                let ids: Tensor = accelerator.gather_for_metrics(&ids?)?;
                seen.extend(Vec::<i64>::try_from(ids)?);
            }
            let expected: Vec<i64> = (0..count).collect();
            assert_eq!(
                seen,
                expected,
                "{count} samples, batches of {batch}, {} ranks",
                rank.world()
            );
        }
        Ok(())
    });
}

#[test]
fn shuffling_is_one_order_over_all_ranks_whatever_their_seeds() {
    ranks(&[2, 3], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        tch::manual_seed(rank.index() as i64);
        let loader = DataLoader::builder((0..12i64).collect::<Vec<_>>())
            .batch_size(2)
            .shuffle(true)
            .build()?;
        let loader = accelerator.prepare(loader)?;
        for _ in 0..2 {
            let mut all = Vec::new();
            for ids in &loader {
                let ids: Tensor = accelerator.gather(&ids?)?;
                all.extend(Vec::<i64>::try_from(ids)?);
            }
            all.sort_unstable();
            assert_eq!(all, (0..12).collect::<Vec<_>>());
        }
        Ok(())
    });
}

#[test]
fn a_schedule_moves_once_per_rank_wherever_it_stands_in_the_tuple() {
    ranks(&[1, 2], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let model = Linear::new(1, 1, &Factory::default())?;
        let optimizer = AdamW::new(
            parameters(&model),
            AdamWConfig {
                lr: 1.0,
                ..Default::default()
            },
        )?;
        let scheduler = linear_schedule_with_warmup(&optimizer, 0, 10);
        let (mut scheduler, mut optimizer, model) =
            accelerator.prepare((scheduler, optimizer, model))?;
        accelerator.backward(
            &model
                .call(floats(&[1.0]).unsqueeze(1))?
                .f_sum(Kind::Float)?,
        )?;
        optimizer.step()?;
        scheduler.step()?;
        let expected = 1.0 - rank.world() as f64 / 10.0;
        assert!((scheduler.last_lr()[0] - expected).abs() < 1e-12);
        assert!(!accelerator.optimizer_step_was_skipped());
        Ok(())
    });
}

#[test]
fn a_model_of_tch_trains_on_all_ranks() {
    ranks(&[1, 2], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        tch::manual_seed(rank.index() as i64);
        let store = tch::nn::VarStore::new(Device::Cpu);
        let network = tch::nn::seq()
            .add(tch::nn::linear(
                store.root() / "a",
                3,
                8,
                Default::default(),
            ))
            .add_fn(|x| x.relu())
            .add(tch::nn::linear(
                store.root() / "b",
                8,
                1,
                Default::default(),
            ));
        let model = accelerate::nn::VarStoreModel::new(store, network)?;
        let optimizer = Sgd::new(parameters(&model), SgdConfig::new(0.1))?;
        let (model, mut optimizer) = accelerator.prepare((model, optimizer))?;
        for _ in 0..2 {
            let x = Tensor::randn([4, 3], (Kind::Float, Device::Cpu));
            accelerator.backward(&model.call(&x)?.f_square()?.f_mean(Kind::Float)?)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
        }
        let all: Tensor = accelerator.gather(Tensor::from_slice(&values(&*model)))?;
        let parts = all.chunk(rank.world() as i64, 0);
        assert!(
            parts.iter().all(|part| part.equal(&parts[0])),
            "weights differ"
        );
        Ok(())
    });
}
