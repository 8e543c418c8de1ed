//! A small training job whose every number matters.

use std::num::NonZeroUsize;
use std::path::Path;

use accelerate::checkpoint::ProjectConfiguration;
use accelerate::data::{DataLoader, PreparedDataLoader};
use accelerate::nn::{Dropout, Factory, Forward, Linear, Module, ModuleState};
use accelerate::optim::{
    AcceleratedOptimizer, AcceleratedScheduler, AdamW, AdamWConfig, LambdaLR, Optimizer, Scheduler,
    linear_schedule_with_warmup,
};
use accelerate::parallel::DistributedDataParallelKwargs;
use accelerate::precision::MixedPrecision;
use accelerate::{Accelerator, DataLoaderConfiguration, PreparedModel, Result};
use tch::{Device, Kind, Tensor};

#[derive(Debug, Module)]
pub(crate) struct Net {
    first: Linear,
    dropout: Dropout,
    second: Linear,
    state: ModuleState,
}

impl Net {
    fn new(dropout: f64, kind: Kind) -> Result<Self> {
        let factory = Factory::new(Device::Cpu, kind);
        Ok(Self {
            first: Linear::new(3, 8, &factory)?,
            dropout: Dropout::new(dropout)?,
            second: Linear::new(8, 1, &factory)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for Net {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let hidden = self.dropout.call(self.first.call(input)?.f_tanh()?)?;
        self.second.call(hidden)
    }
}

/// How a job is set up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) seed: i64,
    pub(crate) accumulation: usize,
    pub(crate) workers: usize,
    pub(crate) precision: MixedPrecision,
    /// The batch size of one rank.
    pub(crate) batch_size: usize,
    pub(crate) dropout: f64,
    pub(crate) samples: i64,
    /// How many steps it takes the learning rate to fall to zero.
    pub(crate) schedule: u64,
    /// The type of the weights.
    pub(crate) kind: Kind,
    /// How gradients travel.
    pub(crate) ddp: fn() -> DistributedDataParallelKwargs,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            seed: 1,
            accumulation: 1,
            workers: 0,
            precision: MixedPrecision::No,
            batch_size: 2,
            dropout: 0.25,
            samples: 25,
            schedule: 200,
            kind: Kind::Float,
            ddp: DistributedDataParallelKwargs::default,
        }
    }
}

pub(crate) struct Job {
    pub(crate) accelerator: Accelerator,
    pub(crate) model: PreparedModel<Net>,
    pub(crate) optimizer: AcceleratedOptimizer<AdamW>,
    pub(crate) scheduler: AcceleratedScheduler<LambdaLR>,
    pub(crate) batches: PreparedDataLoader<Vec<i64>>,
}

/// One step: which samples, and what became of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) samples: Vec<i64>,
    pub(crate) loss: u64,
    pub(crate) lr: u64,
    pub(crate) draw: u64,
}

impl Job {
    pub(crate) fn new(folder: &Path, setup: Setup) -> Result<Self> {
        Self::with_project(ProjectConfiguration::automatic(folder), setup)
    }

    pub(crate) fn with_project(project: ProjectConfiguration, setup: Setup) -> Result<Self> {
        let accelerator = Accelerator::builder()
            .project_config(project)
            .mixed_precision(setup.precision)
            .ddp((setup.ddp)())
            .fp16_on_cpu(true)
            .gradient_accumulation_steps(NonZeroUsize::new(setup.accumulation).unwrap())
            .dataloader_config(DataLoaderConfiguration {
                use_stateful_dataloader: true,
                ..Default::default()
            })
            .build()?;
        tch::manual_seed(setup.seed);
        let model = Net::new(setup.dropout, setup.kind)?;
        model.train(true);
        let parameters = model
            .parameters()
            .into_iter()
            .map(|parameter| parameter.tensor().shallow_clone())
            .collect::<Vec<_>>();
        let optimizer = AdamW::new(
            parameters,
            AdamWConfig {
                lr: 0.05,
                ..Default::default()
            },
        )?;
        let scheduler = linear_schedule_with_warmup(&optimizer, 3, setup.schedule);
        let batches = DataLoader::builder((0..setup.samples).collect::<Vec<_>>())
            .batch_size(setup.batch_size)
            .shuffle(true)
            .num_workers(setup.workers)
            .build()?;
        let (model, optimizer, scheduler, batches) =
            accelerator.prepare((model, optimizer, scheduler, batches))?;
        Ok(Self {
            accelerator,
            model,
            optimizer,
            scheduler,
            batches,
        })
    }

    /// Trains on for so many batches, over as many epochs as it takes.
    pub(crate) fn train(&mut self, steps: usize) -> Result<Vec<Step>> {
        self.train_and(steps, |_, _| Ok(()))
    }

    /// As [`train`](Self::train), with something to do after each batch.
    pub(crate) fn train_and(
        &mut self,
        steps: usize,
        mut after: impl FnMut(&Accelerator, usize) -> Result<()>,
    ) -> Result<Vec<Step>> {
        self.train_until(steps, |accelerator, done| {
            after(accelerator, done).map(|()| false)
        })
    }

    /// As [`train`](Self::train), until something after a batch says that it is enough.
    pub(crate) fn train_until(
        &mut self,
        steps: usize,
        mut is_enough: impl FnMut(&Accelerator, usize) -> Result<bool>,
    ) -> Result<Vec<Step>> {
        let mut done = Vec::new();
        while done.len() < steps {
            for batch in &self.batches {
                let scope = self.accelerator.accumulate(&self.model)?;
                let samples = batch?;
                done.push(step(
                    &self.accelerator,
                    &self.model,
                    &mut self.optimizer,
                    &mut self.scheduler,
                    &samples,
                )?);
                drop(scope);
                if is_enough(&self.accelerator, done.len())? || done.len() == steps {
                    return Ok(done);
                }
            }
        }
        Ok(done)
    }

    /// All weights, bit by bit.
    pub(crate) fn weights(&self) -> Vec<u64> {
        let bits = |tensor: &Tensor| -> Vec<u64> {
            let values: Vec<f64> = tensor
                .flatten(0, -1)
                .to_kind(Kind::Double)
                .try_into()
                .unwrap();
            values.into_iter().map(f64::to_bits).collect()
        };
        let parameters = self.model.parameters();
        parameters
            .iter()
            .flat_map(|one| bits(one.tensor()))
            .collect()
    }
}

pub(crate) fn step(
    accelerator: &Accelerator,
    model: &PreparedModel<Net>,
    optimizer: &mut AcceleratedOptimizer<AdamW>,
    scheduler: &mut AcceleratedScheduler<LambdaLR>,
    samples: &Tensor,
) -> Result<Step> {
    let kind = model.first.weight.tensor().kind();
    let x = samples
        .f_to_kind(kind)?
        .f_div_scalar(10.0)?
        .f_unsqueeze(1)?;
    let input = Tensor::f_cat(&[&x, &x.f_sin()?, &x.f_cos()?], 1)?;
    let target = x.f_square()?;
    let loss = model
        .call(input)?
        .f_sub(&target)?
        .f_square()?
        .f_mean(kind)?;
    accelerator.backward(&loss)?;
    optimizer.step()?;
    scheduler.step()?;
    optimizer.zero_grad()?;
    Ok(Step {
        samples: Vec::try_from(samples)?,
        loss: loss.f_double_value(&[])?.to_bits(),
        lr: scheduler.last_lr()[0].to_bits(),
        draw: Tensor::f_rand([], (Kind::Float, Device::Cpu))?
            .f_double_value(&[])?
            .to_bits(),
    })
}
