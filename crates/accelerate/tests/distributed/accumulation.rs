//! Accumulating gradients: when they are complete, what is sent, and what comes out.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

use std::num::NonZeroUsize;

use accelerate::accumulation::{GradientAccumulationPlugin, Models};
use accelerate::data::{DataLoader, TensorDataset};
use accelerate::nn::{Embedding, Factory, Forward, Linear, Module, ModuleState};
use accelerate::optim::{Optimizer, Sgd, SgdConfig};
use accelerate::parallel::DistributedDataParallelKwargs;
use accelerate::{Accelerator, AcceleratorBuilder, Error, Result};
use accelerate_testkit::{Rank, ranks, recorded_here};
use accelerate_torch::{ReduceOp, autograd};
use serde_json::Value;
use tch::{Device, Kind, Reduction, Tensor};

fn count(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

fn accumulating(steps: usize) -> AcceleratorBuilder {
    Accelerator::builder()
        .cpu(true)
        .gradient_accumulation_steps(count(steps))
}

fn parameters(module: &dyn Module) -> Vec<Tensor> {
    let own = module.parameters();
    own.into_iter()
        .map(|one| one.tensor().shallow_clone())
        .collect()
}

/// `w * x` with one weight.
fn scalar_model(weight: f64) -> Result<Linear> {
    let model = Linear::without_bias(1, 1, &Factory::default())?;
    let _ = tch::no_grad(|| parameters(&model)[0].f_fill_(weight))?;
    Ok(model)
}

fn x(value: f64) -> Tensor {
    Tensor::from_slice(&[value as f32]).reshape([1, 1])
}

fn gradient(parameter: &Tensor) -> f64 {
    autograd::grad(parameter)
        .unwrap()
        .unwrap()
        .double_value(&[0, 0])
}

/// How many collectives the group has run: each one has a number.
fn collectives(accelerator: &Accelerator) -> Result<u64> {
    let Some(group) = accelerator.state().process_group() else {
        return Ok(0);
    };
    let probe = Tensor::zeros([1], (Kind::Float, Device::Cpu));
    let work = group.all_reduce_async(&probe, ReduceOp::Sum)?;
    let number = work.sequence()?;
    work.wait()?;
    Ok(number)
}

#[derive(serde::Deserialize)]
struct Recording {
    made_with: MadeWith,
    batch_size: usize,
    epochs: usize,
    optimizer: RecordedSgd,
    inputs: Value,
    targets: Value,
    initial: Vec<Value>,
    cases: Vec<RecordedCase>,
}

#[derive(serde::Deserialize)]
struct MadeWith {
    processor: String,
    kernels: String,
}

#[derive(serde::Deserialize)]
struct RecordedSgd {
    lr: f64,
    momentum: f64,
}

#[derive(serde::Deserialize)]
struct RecordedCase {
    ranks: usize,
    steps: usize,
    syncs: Vec<bool>,
    weights: Vec<Vec<f32>>,
}

fn numbers(value: &Value, found: &mut Vec<f32>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| numbers(item, found)),
        other => found.push(other.as_f64().unwrap() as f32),
    }
}

fn flat(value: &Value) -> Tensor {
    let mut found = Vec::new();
    numbers(value, &mut found);
    Tensor::from_slice(&found)
}

#[derive(Module)]
struct Perceptron {
    hidden: Linear,
    output: Linear,
    state: ModuleState,
}

impl Forward for Perceptron {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        self.output.call(self.hidden.call(input)?.f_tanh()?)
    }
}

#[test]
fn weights_after_every_batch_equal_the_originals() {
    ranks(&[1, 2], |rank: Rank| -> Result<()> {
        let text = include_str!("../../../../tests/parity/fixtures/accumulation.json");
        let recording: Recording = serde_json::from_str(text).unwrap();
        let cases = recording.cases.iter();
        for case in cases.filter(|case| case.ranks == rank.world()) {
            check_case(&recording, case)?;
        }
        Ok(())
    });
}

fn check_case(recording: &Recording, case: &RecordedCase) -> Result<()> {
    let MadeWith { processor, kernels } = &recording.made_with;
    let same_kernels = recorded_here(processor, kernels);
    let accelerator = accumulating(case.steps).build()?;
    let factory = Factory::default();
    let model = Perceptron {
        hidden: Linear::new(3, 4, &factory)?,
        output: Linear::new(4, 1, &factory)?,
        state: ModuleState::default(),
    };
    let own = parameters(&model);
    for (parameter, values) in own.iter().zip(&recording.initial) {
        let values = flat(values).reshape(parameter.size());
        tch::no_grad(|| parameter.shallow_clone().f_copy_(&values))?;
    }
    let mut config = SgdConfig::new(recording.optimizer.lr);
    config.momentum = recording.optimizer.momentum;
    let optimizer = Sgd::new(parameters(&model), config)?;
    let samples = TensorDataset::new([
        flat(&recording.inputs).reshape([-1, 3]),
        flat(&recording.targets).reshape([-1, 1]),
    ])?;
    let loader = DataLoader::builder(samples)
        .batch_size(recording.batch_size)
        .build()?;
    let (model, mut optimizer, loader) = accelerator.prepare((model, optimizer, loader))?;
    let mut batches = case.syncs.iter().zip(&case.weights);
    for _ in 0..recording.epochs {
        for batch in &loader {
            let [x, y] = batch?;
            let step = accelerator.accumulate(&model)?;
            let loss = model.call(x)?.f_mse_loss(&y, Reduction::Mean)?;
            accelerator.backward(&loss)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
            let (sync, weights) = batches.next().unwrap();
            assert_eq!(step.sync_gradients(), *sync);
            let found: Vec<f32> = own
                .iter()
                .flat_map(|one| Vec::<f32>::try_from(one.detach().flatten(0, -1)).unwrap())
                .collect();
            let what = format!("{} ranks, {} steps", case.ranks, case.steps);
            if same_kernels {
                assert_eq!(found, *weights, "{what}");
            }
            // Elsewhere sums are taken in another order.
            for (found, expected) in found.iter().zip(weights) {
                assert!(
                    (found - expected).abs() <= 1e-6 * expected.abs().max(0.1),
                    "{what}: {found} {expected}"
                );
            }
        }
    }
    assert!(batches.next().is_none());
    Ok(())
}

#[test]
fn loaders_end_an_accumulation_as_in_the_original() -> Result<()> {
    let cases = [
        (5, 2, true, ".S.SS|.S.SS"),
        (5, 2, false, ".S.S.|S.S.S"),
        (7, 3, true, "..S..SS|..S..SS"),
        (6, 3, true, "..S..S|..S..S"),
        (4, 8, true, "...S|...S"),
        (4, 8, false, "....|...S"),
    ];
    for (length, steps, sync_with_dataloader, expected) in cases {
        let plugin = GradientAccumulationPlugin {
            sync_with_dataloader,
            ..GradientAccumulationPlugin::new(count(steps))
        };
        let accelerator = Accelerator::builder()
            .cpu(true)
            .gradient_accumulation_plugin(plugin)
            .build()?;
        let loader = DataLoader::builder(vec![0f32; length])
            .batch_size(1)
            .build()?;
        let loader = accelerator.prepare(loader)?;
        let epoch = || -> Result<String> {
            let mut found = String::new();
            for batch in &loader {
                let _ = batch?;
                drop(accelerator.accumulate(())?);
                // The answer stays after the scope, for progress bars and the like.
                found.push(if accelerator.sync_gradients() {
                    'S'
                } else {
                    '.'
                });
            }
            Ok(found)
        };
        let found = format!("{}|{}", epoch()?, epoch()?);
        assert_eq!(found, expected, "{length} batches, {steps} steps");
    }
    Ok(())
}

#[test]
fn loops_inside_of_loops_do_not_disturb_each_other() -> Result<()> {
    let accelerator = accumulating(2).build()?;
    let (outer, inner) = (scalar_model(1.0)?, scalar_model(1.0)?);
    let (outer, inner) = accelerator.prepare((outer, inner))?;
    let long = DataLoader::builder(vec![0f32; 5]).batch_size(1).build()?;
    let short = DataLoader::builder(vec![0f32; 3]).batch_size(1).build()?;
    let (long, short) = accelerator.prepare((long, short))?;
    let mut syncs = Vec::new();
    for batch in &long {
        let _ = batch?;
        let step = accelerator.accumulate(&outer)?;
        let mut within = Vec::new();
        for batch in &short {
            let _ = batch?;
            within.push(accelerator.accumulate(&inner)?.sync_gradients());
        }
        assert_eq!(within, [false, true, true]);
        // The optimizer of the outer loop reads the flag here.
        assert_eq!(accelerator.sync_gradients(), step.sync_gradients());
        syncs.push(step.sync_gradients());
        // An evaluation reaches its own end, not that of the outer loop.
        for batch in &short {
            let _ = batch?;
        }
    }
    assert_eq!(syncs, [false, true, false, true, true]);
    Ok(())
}

#[test]
fn gradients_stay_local_until_they_are_complete() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let accelerator = accumulating(2).build()?;
        let model = accelerator.prepare(scalar_model(1.0)?)?;
        let weight = parameters(&*model).remove(0);
        let own = rank.index() as f64;
        let batch = || -> Result<f64> {
            let _step = accelerator.accumulate(&model)?;
            accelerator.backward(&model.call(x(1.0 + 2.0 * own))?.f_sum(Kind::Float)?)?;
            Ok(gradient(&weight))
        };
        assert_eq!(batch()?, 0.5 + own);
        // In the middle of it clipping does nothing, as the optimizer's step.
        assert!(accelerator.clip_grad_norm(&[&weight], 0.1)?.is_none());
        assert_eq!(gradient(&weight), 0.5 + own);
        assert_eq!(batch()?, 2.0);
        assert_eq!(batch()?, 2.5 + own);
        assert_eq!(batch()?, 4.0);
        let norm = accelerator.clip_grad_norm(&[&weight], 0.5)?.unwrap();
        assert_eq!(norm.double_value(&[]), 4.0);
        assert_eq!(gradient(&weight) as f32, 0.499_999_88);
        // Two models in one scope behave alike.
        let pair = accelerator.prepare((scalar_model(1.0)?, scalar_model(1.0)?))?;
        for expected in [0.5 + own, 2.0] {
            let _step = accelerator.accumulate((&pair.0, &pair.1))?;
            for one in [&pair.0, &pair.1] {
                accelerator.backward(&one.call(x(1.0 + 2.0 * own))?.f_sum(Kind::Float)?)?;
                assert_eq!(gradient(&parameters(&**one)[0]), expected);
            }
        }
        Ok(())
    });
}

#[test]
fn nothing_is_sent_while_gradients_are_accumulated() {
    ranks(&[3], |_: Rank| -> Result<()> {
        for sync_each_batch in [false, true] {
            let plugin = GradientAccumulationPlugin {
                sync_each_batch,
                ..GradientAccumulationPlugin::new(count(4))
            };
            let accelerator = Accelerator::builder()
                .cpu(true)
                .gradient_accumulation_plugin(plugin)
                .build()?;
            let model = accelerator.prepare(scalar_model(1.0)?)?;
            for batch in 1..=8 {
                let before = collectives(&accelerator)?;
                let step = accelerator.accumulate(&model)?;
                accelerator.backward(&model.call(x(1.0))?.f_sum(Kind::Float)?)?;
                assert_eq!(step.sync_gradients(), batch % 4 == 0);
                drop(step);
                let sent = collectives(&accelerator)? - before - 1;
                assert_eq!(sent > 0, sync_each_batch || batch % 4 == 0, "batch {batch}");
            }
        }
        Ok(())
    });
}

#[test]
fn an_exchange_at_every_batch_does_not_let_the_optimizer_step() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let plugin = GradientAccumulationPlugin {
            sync_each_batch: true,
            ..GradientAccumulationPlugin::new(count(2))
        };
        let accelerator = Accelerator::builder()
            .cpu(true)
            .gradient_accumulation_plugin(plugin)
            .build()?;
        let model = scalar_model(1.0)?;
        let optimizer = Sgd::new(parameters(&model), SgdConfig::new(1.0))?;
        let (model, mut optimizer) = accelerator.prepare((model, optimizer))?;
        let weight = parameters(&*model).remove(0);
        let mean = (rank.world() as f64 + 1.0) / 2.0;
        for (gradients, weights) in [(mean / 2.0, 1.0), (mean, 1.0 - mean)] {
            let _step = accelerator.accumulate(&model)?;
            let own = x(rank.index() as f64 + 1.0);
            accelerator.backward(&model.call(own)?.f_sum(Kind::Float)?)?;
            assert_eq!(gradient(&weight), gradients);
            optimizer.step()?;
            assert_eq!(weight.double_value(&[0, 0]), weights);
            optimizer.zero_grad()?;
        }
        Ok(())
    });
}

#[test]
fn an_exchange_can_be_triggered_after_the_forward_pass() {
    ranks(&[1, 3], |rank: Rank| -> Result<()> {
        for gradient_as_bucket_view in [false, true] {
            let kwargs = DistributedDataParallelKwargs {
                gradient_as_bucket_view,
                ..Default::default()
            };
            let accelerator = Accelerator::builder().cpu(true).ddp(kwargs).build()?;
            let model = accelerator.prepare(scalar_model(1.0)?)?;
            let weight = parameters(&*model).remove(0);
            let own = rank.index() as f64 + 1.0;
            let mean = (rank.world() as f64 + 1.0) / 2.0;
            for round in 1..=3 {
                autograd::set_grad(&weight, None)?;
                {
                    let _local = accelerator.no_sync(&model);
                    accelerator.backward(&model.call(x(own))?.f_sum(Kind::Float)?)?;
                    assert_eq!(gradient(&weight), own);
                    let loss = model.call(x(own))?.f_sum(Kind::Float)?;
                    let _late = accelerator.trigger_sync_in_backward(&model)?;
                    accelerator.backward(&loss)?;
                }
                assert_eq!(gradient(&weight), 2.0 * mean, "round {round}");
                autograd::set_grad(&weight, None)?;
                accelerator.backward(&model.call(x(own))?.f_sum(Kind::Float)?)?;
                assert_eq!(gradient(&weight), mean, "round {round}");
            }
        }
        Ok(())
    });
}

#[test]
fn two_models_in_one_loop_both_accumulate() {
    ranks(&[1, 2], |rank: Rank| -> Result<()> {
        let accelerator = accumulating(2).build()?;
        let (generator, critic) = (scalar_model(1.0)?, scalar_model(-1.0)?);
        let optimizers = (
            Sgd::new(parameters(&generator), SgdConfig::new(0.5))?,
            Sgd::new(parameters(&critic), SgdConfig::new(0.25))?,
        );
        let (generator, critic, mut first, mut second) =
            accelerator.prepare((generator, critic, optimizers.0, optimizers.1))?;
        for batch in 0..4 {
            let own = x(f64::from(batch) + rank.index() as f64);
            {
                let _step = accelerator.accumulate(&generator)?;
                accelerator.backward(&generator.call(&own)?.f_sum(Kind::Float)?)?;
                first.step()?;
                first.zero_grad()?;
            }
            let _step = accelerator.accumulate(&critic)?;
            accelerator.backward(&critic.call(&own)?.f_sum(Kind::Float)?)?;
            second.step()?;
            second.zero_grad()?;
        }
        assert_eq!(first.learning_rates().step_count(), 2);
        assert_eq!(second.learning_rates().step_count(), 2);
        // The gradient of a batch is its input: two means of two batches over all ranks.
        let sum = 3.0 + (rank.world() as f64 - 1.0);
        let weight = |model: &Linear| parameters(model)[0].double_value(&[0, 0]);
        assert_eq!(weight(&generator), 1.0 - 0.5 * sum);
        assert_eq!(weight(&critic), -1.0 - 0.25 * sum);
        Ok(())
    });
}

#[derive(Module)]
struct Words {
    embedding: Embedding,
    head: Linear,
    state: ModuleState,
}

impl Words {
    fn new() -> Result<Self> {
        let factory = Factory::new(Device::Cpu, Kind::Double);
        let words = Self {
            embedding: Embedding::new(7, 4, &factory)?,
            head: Linear::new(4, 7, &factory)?,
            state: ModuleState::default(),
        };
        for (place, parameter) in words.parameters().into_iter().enumerate() {
            let own = parameter.tensor();
            let wave = Tensor::arange(own.numel() as i64, (Kind::Double, Device::Cpu))
                .f_mul_scalar(0.7)?
                .f_add_scalar(place as f64)?
                .f_sin()?;
            tch::no_grad(|| own.shallow_clone().f_copy_(&wave.f_reshape(own.size())?))?;
        }
        Ok(words)
    }
}

impl Forward for Words {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, ids: Tensor) -> Result<Tensor> {
        self.head.call(self.embedding.call(ids)?)
    }
}

const SENTENCES: i64 = 12;
const LENGTH: i64 = 6;

/// Sentences of 1 to 6 words; -100 stands for padding in the labels.
fn sentences() -> (Tensor, Tensor) {
    let place = |sentence: i64, word: i64| (sentence * 5 + word * 3 + 1) % 7;
    let mut ids = Vec::new();
    let mut labels = Vec::new();
    for sentence in 0..SENTENCES {
        for word in 0..LENGTH {
            let real = word <= (sentence * sentence) % LENGTH;
            ids.push(if real { place(sentence, word) } else { 0 });
            labels.push(if real {
                place(sentence, word + 1)
            } else {
                -100
            });
        }
    }
    let shape = [SENTENCES, LENGTH];
    (
        Tensor::from_slice(&ids).reshape(shape),
        Tensor::from_slice(&labels).reshape(shape),
    )
}

/// Sum of the losses of some sentences and their number of words.
fn loss_sum(model: &Words, rows: &Tensor) -> Result<(Tensor, Tensor)> {
    let (ids, labels) = sentences();
    let labels = labels.f_index_select(0, rows)?.f_reshape([-1])?;
    let logits = model.call(ids.f_index_select(0, rows)?)?;
    let logits = logits.f_reshape([-1, 7])?;
    let loss = logits.f_cross_entropy_loss::<Tensor>(&labels, None, Reduction::Sum, -100, 0.0)?;
    Ok((loss, labels.f_ne(-100)?.f_sum(Kind::Int64)?))
}

#[test]
fn a_loss_per_word_does_not_depend_on_batches_and_ranks() {
    ranks(&[1, 2], |rank: Rank| -> Result<()> {
        for steps in [1, 2, 4, 5] {
            let accelerator = accumulating(steps).build()?;
            let batch_size = 2 / rank.world();
            let rows: Vec<i64> = (0..SENTENCES).collect();
            let loader = DataLoader::builder(rows).batch_size(batch_size).build()?;
            let (model, loader) = accelerator.prepare((Words::new()?, loader))?;
            let mut begin = 0;
            for (number, batch) in (1..).zip(&loader) {
                let step = accelerator.accumulate(&model)?;
                let (loss, words) = loss_sum(&model, &batch?)?;
                let Some(done) = step.backward_normalized(&loss, words)? else {
                    assert!(!step.sync_gradients());
                    continue;
                };
                compare_with_one_batch(&model, begin..number * 2, &done)?;
                begin = number * 2;
                for parameter in parameters(&*model) {
                    autograd::set_grad(&parameter, None)?;
                }
            }
            assert_eq!(begin, SENTENCES, "the tail counts too");
        }
        Ok(())
    });
}

fn compare_with_one_batch(
    model: &Words,
    sentences: std::ops::Range<i64>,
    done: &accelerate::accumulation::NormalizedLoss,
) -> Result<()> {
    let reference = Words::new()?;
    let rows: Vec<i64> = sentences.collect();
    let (sum, words) = loss_sum(&reference, &Tensor::from_slice(&rows))?;
    let mean = sum.f_div(&words)?;
    mean.f_backward()?;
    assert_eq!(done.items.int64_value(&[]), words.int64_value(&[]));
    assert!((done.mean.double_value(&[]) - mean.double_value(&[])).abs() < 1e-12);
    for (own, one) in parameters(model).iter().zip(parameters(&reference)) {
        assert_eq!(own.kind(), Kind::Double);
        let own = autograd::grad(own)?.unwrap();
        let difference = own.f_sub(&one.grad())?.f_abs()?.f_max()?;
        assert!(difference.double_value(&[]) < 1e-9, "{rows:?}");
    }
    Ok(())
}

#[test]
fn a_normalized_loss_asks_for_one_call_in_a_scope_of_models() -> Result<()> {
    let accelerator = accumulating(1).build()?;
    let model = accelerator.prepare(scalar_model(1.0)?)?;
    let loss = || -> Result<Tensor> { Ok(model.call(x(3.0))?.f_sum(Kind::Float)?) };
    let step = accelerator.accumulate(&model)?;
    // No item at all, as where everything is padding, is no division by zero.
    let done = step.backward_normalized(&loss()?.f_mul_scalar(0)?, 0usize)?;
    assert_eq!(done.unwrap().mean.double_value(&[]), 0.0);
    assert_eq!(gradient(&parameters(&*model)[0]), 0.0);
    let again = step.backward_normalized(&loss()?, 2usize);
    assert!(matches!(again, Err(Error::Argument { .. })));
    drop(step);
    let bare = accelerator.accumulate(())?;
    assert!(bare.backward_normalized(&loss()?, 2usize).is_err());
    assert!(
        accelerator
            .accumulate(&model)?
            .backward_normalized(&loss()?, Tensor::from_slice(&[1i64, 2]))
            .is_err()
    );
    Ok(())
}

/// The documentation's example: x = 1..=8, y = 2x, one weight from 0, SGD with 0.02.
fn documented_weight(batch_size: usize, steps: usize) -> Result<f64> {
    let accelerator = accumulating(steps).build()?;
    let model = scalar_model(0.0)?;
    let optimizer = Sgd::new(parameters(&model), SgdConfig::new(0.02))?;
    let samples: Vec<(f32, f32)> = (1u8..=8)
        .map(|i| (f32::from(i), 2.0 * f32::from(i)))
        .collect();
    let loader = DataLoader::builder(samples)
        .batch_size(batch_size)
        .build()?;
    let (model, mut optimizer, loader) = accelerator.prepare((model, optimizer, loader))?;
    for batch in &loader {
        let (x, y) = batch?;
        let _step = accelerator.accumulate(&model)?;
        let out = model.call(x.f_unsqueeze(1)?)?;
        accelerator.backward(&out.f_mse_loss(&y.f_unsqueeze(1)?, Reduction::Mean)?)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
    }
    Ok(parameters(&*model)[0].double_value(&[0, 0]))
}

#[test]
fn the_documented_example_ends_at_the_same_weight_both_ways() -> Result<()> {
    for (batch_size, steps) in [(8, 1), (2, 4)] {
        let weight = documented_weight(batch_size, steps)?;
        assert_eq!(format!("{weight:.5}"), "2.04000");
    }
    Ok(())
}

#[test]
fn settings_of_accumulation_do_not_contradict_each_other() -> Result<()> {
    let plugin = GradientAccumulationPlugin::new(count(3));
    let both = accumulating(2).gradient_accumulation_plugin(plugin).build();
    assert!(
        both.unwrap_err()
            .to_string()
            .contains("`num_steps: 2` in the plugin")
    );
    let accelerator = Accelerator::builder()
        .cpu(true)
        .gradient_accumulation_plugin(plugin)
        .build()?;
    assert_eq!(accelerator.gradient_accumulation_steps(), count(3));
    assert!(!accelerator.gradient_state().adjust_scheduler());
    // Changed while training, it counts from the next batch on.
    accelerator.set_gradient_accumulation_steps(count(2));
    let syncs: Vec<bool> = (0..4)
        .map(|_| accelerator.accumulate(()).unwrap().sync_gradients())
        .collect();
    assert_eq!(syncs, [false, true, false, true]);
    // An accelerator of its own counts for itself.
    assert!(accumulating(1).build()?.accumulate(())?.sync_gradients());
    assert_eq!(accelerator.gradient_accumulation_steps(), count(2));
    let models: [&dyn Models; 0] = [];
    assert!(!accelerator.accumulate(models)?.sync_gradients());
    Ok(())
}
