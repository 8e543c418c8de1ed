//! Training with a different number of batches on each rank, compared with PyTorch's `Join`.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

use super::logged::Logged;
use accelerate::data::{DataLoader, FnIterableDataset, IterableDataLoader};
use accelerate::nn::{Buffer, Factory, Forward, Linear, Module, ModuleState, Parameter};
use accelerate::optim::{Optimizer, Sgd, SgdConfig};
use accelerate::parallel::{CommHook, DistributedDataParallelKwargs, PowerSgdOptions};
use accelerate::{Accelerator, DataLoaderConfiguration, PreparedModel, Result};
use accelerate_testkit::{Rank, ranks};
use tch::{Kind, Tensor};

#[derive(serde::Deserialize)]
struct Recording {
    learning_rate: f64,
    cases: Vec<Case>,
}

#[derive(Clone, Default, serde::Deserialize)]
struct Case {
    name: String,
    /// Batches of each rank.
    batches: Vec<usize>,
    options: Options,
    /// The ranks that use the spare weight.
    spare: Vec<usize>,
    accumulate: usize,
    ranks: Vec<State>,
}

#[derive(Clone, Copy, Default, serde::Deserialize)]
#[serde(default)]
struct Options {
    broadcast_buffers: Option<bool>,
    find_unused_parameters: bool,
    gradient_as_bucket_view: bool,
    static_graph: bool,
}

#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
struct State {
    weight: Vec<f32>,
    spare: Vec<f32>,
    seen: Vec<f32>,
}

/// Two weights, one of which a rank may leave out, and a buffer that differs over ranks.
#[derive(Debug, Module)]
struct Model {
    weight: Parameter,
    spare: Parameter,
    seen: Buffer,
    #[module(skip)]
    rank: usize,
    state: ModuleState,
}

impl Model {
    fn new(rank: usize) -> Result<Self> {
        Ok(Self {
            weight: Parameter::new(Tensor::from_slice(&[1f32, -2.0, 0.5, 3.0]))?,
            spare: Parameter::new(Tensor::from_slice(&[0.25f32, -1.0, 2.0]))?,
            seen: Buffer::new(Tensor::from_slice(&[0f32])),
            rank,
            state: ModuleState::default(),
        })
    }

    fn values(&self) -> State {
        let numbers = |tensor: &Tensor| Vec::try_from(tensor.detach()).unwrap();
        State {
            weight: numbers(self.weight.tensor()),
            spare: numbers(self.spare.tensor()),
            seen: numbers(self.seen.tensor()),
        }
    }
}

impl Forward for Model {
    type Input = (Tensor, bool);
    type Output = Tensor;

    fn forward(&self, (x, with_spare): (Tensor, bool)) -> Result<Tensor> {
        let mut seen = self.seen.tensor().shallow_clone();
        let _ = seen.f_add_scalar_(self.rank as i64 + 1)?;
        let weight = self.weight.tensor();
        let linear = weight.f_mul(&x)?.f_sum(Kind::Float)?;
        let square = weight.f_mul(weight)?.f_sum(Kind::Float)?.f_div_scalar(2)?;
        let loss = linear.f_add(&square)?;
        if !with_spare {
            return Ok(loss);
        }
        let spare = self.spare.tensor().f_mul(&x.f_narrow(0, 0, 3)?)?;
        Ok(loss.f_add(&spare.f_sum(Kind::Float)?)?)
    }
}

fn batch(step: usize, rank: usize) -> Tensor {
    let values: Vec<f32> = (0..4)
        .map(|i| ((i * 5 + step * 7 + rank * 3) % 11) as f32 - 5.0)
        .map(|value| value / 3.0)
        .collect();
    Tensor::from_slice(&values)
}

fn accelerator(ddp: DistributedDataParallelKwargs) -> Result<Accelerator> {
    Accelerator::builder()
        .ddp(ddp)
        .dataloader_config(DataLoaderConfiguration {
            even_batches: false,
            ..Default::default()
        })
        .build()
}

/// Trains as the recorder does.
fn train(rank: Rank, case: &Case, learning_rate: f64, comm_hook: CommHook) -> Result<State> {
    let ddp = DistributedDataParallelKwargs {
        broadcast_buffers: case.options.broadcast_buffers.unwrap_or(true),
        find_unused_parameters: case.options.find_unused_parameters,
        gradient_as_bucket_view: case.options.gradient_as_bucket_view,
        static_graph: case.options.static_graph,
        comm_hook,
        ..Default::default()
    };
    let accelerator = accelerator(ddp)?;
    let model = Model::new(rank.index())?;
    let parameters = accelerate::nn::Module::parameters(&model);
    let parameters: Vec<Tensor> = parameters
        .iter()
        .map(|p| p.tensor().shallow_clone())
        .collect();
    let optimizer = Sgd::new(parameters, SgdConfig::new(learning_rate))?;
    let (model, mut optimizer): (PreparedModel<Model>, _) =
        accelerator.prepare((model, optimizer))?;
    accelerator.join_uneven_inputs(&[&model], None, || {
        for step in 0..case.batches[rank.index()] {
            let syncs = (step + 1) % case.accumulate == 0;
            let ddp = model.data_parallel().unwrap();
            ddp.set_sync_gradients(syncs);
            let with_spare = case.spare.contains(&rank.index());
            let loss = model.call((&batch(step, rank.index()), with_spare))?;
            accelerator.backward(&loss)?;
            if syncs {
                optimizer.step()?;
                optimizer.zero_grad()?;
            }
        }
        Ok(())
    })?;
    Ok(model.values())
}

#[test]
fn weights_are_those_of_pytorch_on_every_rank() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let text = include_str!("../../../../tests/parity/fixtures/join.json");
        let recording: Recording = serde_json::from_str(text).unwrap();
        assert!(recording.cases.len() >= 12);
        for case in &recording.cases {
            if case.batches.len() == rank.world() {
                let found = train(rank, case, recording.learning_rate, CommHook::No)?;
                assert_eq!(found, case.ranks[rank.index()], "{}", case.name);
            }
        }
        Ok(())
    });
}

#[test]
fn every_option_ends_with_one_model() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let compressed = CommHook::PowerSgd(PowerSgdOptions {
            start_power_sgd_iter: 2,
            min_compression_rate: 0.1,
            ..Default::default()
        });
        let fixed = Options {
            static_graph: true,
            ..Options::default()
        };
        for (options, hook) in [
            (Options::default(), CommHook::Bf16),
            (Options::default(), compressed),
            (fixed, CommHook::No),
        ] {
            let case = Case {
                batches: [3, 6, 4][..rank.world()].to_vec(),
                options,
                spare: vec![0, 1, 2],
                accumulate: 1,
                ..Case::default()
            };
            let state = train(rank, &case, 0.125, hook.clone())?;
            let all = accelerator(Default::default())?
                .gather::<Tensor>(&Tensor::from_slice(&[state.weight, state.spare].concat()))?;
            let parts = all.chunk(rank.world() as i64, 0);
            assert!(
                parts.iter().all(|part| part.equal(&parts[0])),
                "{hook:?} {all}"
            );
        }
        Ok(())
    });
}

#[test]
fn a_loader_without_even_batches_is_read_to_its_end_on_every_rank() {
    ranks(&[2, 3], |_| -> Result<()> {
        let accelerator = accelerator(Default::default())?;
        let model = Linear::new(1, 1, &Factory::default())?;
        let samples: Vec<i64> = (0..7).collect();
        let loader = DataLoader::builder(samples).batch_size(2).build()?;
        let (model, loader) = accelerator.prepare((model, loader))?;
        let mut seen = Vec::new();
        accelerator.join_uneven_inputs(&[&model], None, || {
            for batch in &loader {
                let batch: Tensor = batch?;
                seen.extend(Vec::<i64>::try_from(&batch)?);
                let x = batch.f_to_kind(Kind::Float)?.f_unsqueeze(1)?;
                accelerator.backward(&model.call(x)?.f_sum(Kind::Float)?)?;
            }
            Ok(())
        })?;
        let group = accelerator.state().process_group().unwrap();
        let text = format!("{seen:?}");
        let all = group.all_gather_bytes(text.as_bytes())?;
        let mut ids: Vec<i64> = all
            .iter()
            .flat_map(|one| serde_json::from_slice::<Vec<i64>>(one).unwrap())
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..7).collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn a_loader_that_rank_0_deals_out_is_named_and_the_others_are_set_for_the_loop() {
    ranks(&[2], |_| -> Result<()> {
        let logged = Logged::default();
        let _guard = tracing::subscriber::set_default(logged.clone());
        let accelerator = Accelerator::new()?;
        let model = Linear::new(1, 1, &Factory::default())?;
        let samples: Vec<i64> = (0..5).collect();
        let shared = DataLoader::builder(samples.clone()).build()?;
        let dealt = FnIterableDataset::new(move || samples.clone().into_iter().map(Ok));
        let dealt = IterableDataLoader::builder(dealt).build()?;
        let (model, shared, _dealt) = accelerator.prepare((model, shared, dealt))?;
        assert_eq!(shared.len(), 3, "even batches");
        let before = logged.warnings().len();
        let own = accelerator.join_uneven_inputs(&[&model], Some(false), || {
            shared.iter().try_fold(0, |count, batch| {
                let batch: Tensor = batch?;
                let x = batch.f_to_kind(Kind::Float)?.f_unsqueeze(1)?;
                accelerator.backward(&model.call(x)?.f_sum(Kind::Float)?)?;
                Ok(count + 1)
            })
        })?;
        assert_eq!(own, 3 - accelerator.process_index());
        assert_eq!(shared.len(), 3, "even batches again");
        let warnings = &logged.warnings()[before..];
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].contains("does not reach 1 loaders"),
            "{warnings:?}"
        );
        Ok(())
    });
}

#[test]
fn without_others_or_with_even_batches_the_loop_just_runs() {
    ranks(&[1, 2], |rank| -> Result<()> {
        let accelerator = accelerator(Default::default())?;
        let model = accelerator.prepare(Linear::new(1, 1, &Factory::default())?)?;
        let even = (rank.world() > 1).then_some(true);
        let answer = accelerator.join_uneven_inputs(&[&model], even, || Ok(rank.index()))?;
        assert_eq!(answer, rank.index());
        Ok(())
    });
}

#[test]
fn an_error_in_the_loop_comes_out_at_once_and_ends_the_join() {
    ranks(&[2], |_| -> Result<()> {
        let accelerator = accelerator(Default::default())?;
        let model = accelerator.prepare(Linear::new(1, 1, &Factory::default())?)?;
        let broken = accelerator.join_uneven_inputs(&[&model], None, || -> Result<()> {
            Err(accelerate::Error::data("no more data"))
        });
        assert!(broken.is_err());
        // Outside of a join nobody is told that this rank goes on.
        for _ in 0..2 {
            let x = Tensor::from_slice(&[1f32]).f_view([1, 1])?;
            accelerator.backward(&model.call(x)?.f_sum(Kind::Float)?)?;
        }
        Ok(())
    });
}
