//! A small language model, and training it in every way.

use std::num::NonZeroUsize;

use accelerate::accumulation::GradientAccumulationPlugin;
use accelerate::nn::{Embedding, Factory, Forward, LayerNorm, Linear, Module, ModuleState};
use accelerate::optim::{
    AcceleratedOptimizer, AdamW, AdamWConfig, Optimizer, ParamGroup, Sgd, SgdConfig,
};
use accelerate::precision::MixedPrecision;
use accelerate::{Accelerator, PreparedModel, Result};
use accelerate_plan::parallel::{Mesh, ParallelPlan, Sharded, SizeRule, WrapPolicy};
use accelerate_testkit::Rank;
use tch::{Kind, Reduction, Tensor};

const WORDS: i64 = 50;
const WIDTH: i64 = 32;

/// What both layers of a block do not divide evenly by.
const HIDDEN: i64 = 73;

#[derive(Debug, Module)]
pub(crate) struct Block {
    pub(crate) first: Linear,
    pub(crate) second: Linear,
    state: ModuleState,
}

impl Forward for Block {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let hidden = self.first.call(&input)?.f_gelu("none")?;
        Ok(input.f_add(&self.second.call(hidden)?)?)
    }
}

#[derive(Debug, Module)]
pub(crate) struct Model {
    pub(crate) embedding: Embedding,
    pub(crate) blocks: Vec<Block>,
    pub(crate) norm: LayerNorm,
    pub(crate) head: Linear,
    state: ModuleState,
}

impl Model {
    pub(crate) fn new() -> Result<Self> {
        let factory = Factory::default();
        let block = || -> Result<Block> {
            Ok(Block {
                first: Linear::new(WIDTH, HIDDEN, &factory)?,
                second: Linear::new(HIDDEN, WIDTH, &factory)?,
                state: ModuleState::default(),
            })
        };
        Ok(Self {
            embedding: Embedding::new(WORDS, WIDTH, &factory)?,
            blocks: vec![block()?, block()?, block()?],
            norm: LayerNorm::new(WIDTH, 1e-5, &factory)?,
            head: Linear::without_bias(WIDTH, WORDS, &factory)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for Model {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, ids: Tensor) -> Result<Tensor> {
        let mut hidden = self.embedding.call(ids)?;
        for block in &self.blocks {
            hidden = block.call(hidden)?;
        }
        self.head.call(self.norm.call(hidden)?)
    }
}

/// How to train.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) plan: Option<ParallelPlan>,
    pub(crate) steps: usize,
    pub(crate) accumulation: usize,
    pub(crate) sync_each_batch: bool,
    pub(crate) max_norm: Option<f64>,
    /// Whether one word's vector in and out is one parameter.
    pub(crate) tied: bool,
    /// Whether a part is not trained: one block, and one layer of another.
    pub(crate) frozen: bool,
    pub(crate) kind: Kind,
    pub(crate) precision: MixedPrecision,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            plan: None,
            steps: 50,
            accumulation: 1,
            sync_each_batch: false,
            max_norm: None,
            tied: false,
            frozen: false,
            kind: Kind::Float,
            precision: MixedPrecision::No,
        }
    }
}

impl Setup {
    /// The same with a plan.
    pub(crate) fn by(&self, plan: ParallelPlan) -> Self {
        Self {
            plan: Some(plan),
            ..self.clone()
        }
    }
}

pub(crate) fn count(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

/// Shards of what over all ranks, in which units.
pub(crate) fn plan(rank: Rank, sharded: Sharded, wrap: WrapPolicy) -> ParallelPlan {
    let mut plan = ParallelPlan::new(Mesh::sharded(count(rank.world())), sharded);
    plan.wrap = wrap;
    plan
}

pub(crate) fn by_class() -> WrapPolicy {
    WrapPolicy::Classes(vec!["Block".to_owned()])
}

pub(crate) fn by_size(least: u64) -> WrapPolicy {
    WrapPolicy::Size {
        min_num_params: least,
        rule: SizeRule::RestAtLeast,
    }
}

/// What came of training.
#[derive(Debug)]
pub(crate) struct Trained {
    pub(crate) losses: Vec<f64>,
    pub(crate) norms: Vec<f64>,
    pub(crate) weights: Vec<(String, Tensor)>,
}

pub(crate) struct Job<O> {
    pub(crate) accelerator: Accelerator,
    pub(crate) model: PreparedModel<Model>,
    pub(crate) optimizer: AcceleratedOptimizer<O>,
    rank: Rank,
    setup: Setup,
    batches: usize,
}

/// A model with two groups of parameters, only one of which decays.
pub(crate) fn groups(model: &Model) -> Vec<ParamGroup> {
    let tensors = |decays: bool| {
        let own = model.named_parameters().into_iter();
        let own = own.filter(|(name, one)| one.requires_grad() && name.ends_with("bias") != decays);
        own.map(|(name, one)| (name, one.tensor().shallow_clone()))
            .collect::<Vec<_>>()
    };
    vec![
        ParamGroup::named(tensors(true)),
        ParamGroup::named(tensors(false)).weight_decay(0.0).lr(2e-3),
    ]
}

pub(crate) fn adamw(model: &Model) -> Result<AdamW> {
    let config = AdamWConfig {
        lr: 1e-3,
        weight_decay: 0.1,
        ..Default::default()
    };
    AdamW::new(groups(model), config)
}

pub(crate) fn sgd(model: &Model) -> Result<Sgd> {
    let config = SgdConfig {
        momentum: 0.9,
        ..SgdConfig::new(0.05)
    };
    Sgd::new(groups(model), config)
}

/// A new model, the same on every rank.
pub(crate) fn model(setup: &Setup) -> Result<Model> {
    tch::manual_seed(7);
    let mut model = Model::new()?;
    if setup.tied {
        model.head.weight = model.embedding.weight.clone();
    }
    if setup.frozen {
        model.blocks[1].set_requires_grad(false)?;
        model.blocks[2].first.set_requires_grad(false)?;
    }
    model.to_kind(setup.kind)?;
    Ok(model)
}

impl Job<AdamW> {
    pub(crate) fn new(rank: Rank, setup: &Setup) -> Result<Self> {
        Self::with(rank, setup, adamw)
    }
}

impl<O> Job<O>
where
    O: Optimizer
        + accelerate::accelerator::Preparable<
            Staged = AcceleratedOptimizer<O>,
            Prepared = AcceleratedOptimizer<O>,
        >,
{
    pub(crate) fn with(
        rank: Rank,
        setup: &Setup,
        optimizer: impl FnOnce(&Model) -> Result<O>,
    ) -> Result<Self> {
        let mut accumulation = GradientAccumulationPlugin::new(count(setup.accumulation));
        accumulation.sync_each_batch = setup.sync_each_batch;
        let mut builder = Accelerator::builder()
            .cpu(true)
            .mixed_precision(setup.precision)
            .gradient_accumulation_plugin(accumulation);
        if let Some(plan) = &setup.plan {
            builder = builder.parallel_plan(plan.clone());
        }
        let accelerator = builder.build()?;
        let model = model(setup)?;
        let optimizer = optimizer(&model)?;
        let (model, optimizer) = accelerator.prepare((model, optimizer))?;
        Ok(Self {
            accelerator,
            model,
            optimizer,
            rank,
            setup: setup.clone(),
            batches: 0,
        })
    }

    /// Trains for some steps of the optimizer.
    pub(crate) fn train(&mut self, steps: usize) -> Result<Trained> {
        let (mut losses, mut norms) = (Vec::new(), Vec::new());
        for _ in 0..steps * self.setup.accumulation {
            let ids = batch(self.batches, self.rank);
            self.batches += 1;
            let _step = self.accelerator.accumulate(&self.model)?;
            let loss = loss(&*self.model, &ids)?;
            losses.push(loss.double_value(&[]));
            self.accelerator.backward(&loss)?;
            if let Some(max_norm) = self.setup.max_norm {
                let parameters = self.model.parameters();
                let norm = self.accelerator.clip_grad_norm(parameters, max_norm)?;
                norms.extend(norm.map(|norm| norm.double_value(&[])));
            }
            self.step()?;
        }
        Ok(Trained {
            losses,
            norms,
            weights: self.weights()?,
        })
    }

    /// A step of the optimizer, behind which gradients are gone.
    pub(crate) fn step(&mut self) -> Result<()> {
        self.optimizer.step()?;
        self.optimizer.zero_grad()
    }

    /// Copies of the whole weights.
    pub(crate) fn weights(&self) -> Result<Vec<(String, Tensor)>> {
        self.model.with_whole_parameters(false, |model| {
            let own = model.named_parameters().into_iter();
            own.map(|(name, one)| Ok((name, one.tensor().f_detach_copy()?)))
                .collect()
        })
    }

    /// Goes on with the batches behind so many steps.
    pub(crate) fn goes_on_behind(&mut self, steps: usize) {
        self.batches = steps * self.setup.accumulation;
    }
}

/// The words of one batch: each rank has others.
pub(crate) fn batch(number: usize, rank: Rank) -> Tensor {
    let mut random = (number * 64 + rank.index()) as u64;
    let words: Vec<i64> = (0..4 * 9)
        .map(|_| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            i64::try_from(random >> 40).unwrap() % WORDS
        })
        .collect();
    Tensor::from_slice(&words).view([4, 9])
}

/// How badly the next word is guessed.
pub(crate) fn loss(model: &Model, ids: &Tensor) -> Result<Tensor> {
    let logits = model.call(ids.f_narrow(1, 0, 8)?)?;
    let targets = ids.f_narrow(1, 1, 8)?.f_reshape([-1])?;
    let logits = logits.f_reshape([-1, WORDS])?;
    Ok(logits.f_cross_entropy_loss::<Tensor>(&targets, None, Reduction::Mean, -100, 0.0)?)
}

/// Trains anew as `setup` says.
pub(crate) fn trained(rank: Rank, setup: &Setup) -> Result<Trained> {
    Job::new(rank, setup)?.train(setup.steps)
}

/// Compares two ways of training: by bits, or within `tolerance`.
pub(crate) fn compare(expected: &Trained, found: &Trained, tolerance: Option<f64>, what: &str) {
    assert_eq!(expected.weights.len(), found.weights.len(), "{what}");
    for ((name, expected), (other, found)) in expected.weights.iter().zip(&found.weights) {
        assert_eq!(name, other, "{what}");
        assert_eq!(expected.size(), found.size(), "{what}: {name}");
        let apart = (expected - found).abs().max().to_kind(Kind::Double);
        let apart = apart.double_value(&[]);
        assert!(
            apart <= tolerance.unwrap_or(0.0),
            "{what}: `{name}` is {apart:e} apart"
        );
    }
    for (expected, found) in expected.losses.iter().zip(&found.losses) {
        let apart = (expected - found).abs();
        let wanted = tolerance.unwrap_or(0.0) * expected.abs().max(1.0);
        assert!(apart <= wanted, "{what}: a loss of {found}, not {expected}");
    }
    assert_eq!(expected.losses.len(), found.losses.len(), "{what}");
}
