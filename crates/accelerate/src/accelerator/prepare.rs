use std::num::NonZeroUsize;

use accelerate_plan::parallel::Clipping;

use super::{Accelerator, PreparedModel};
use crate::Result;
use crate::data::{
    BatchSource, Collate, DataLoader, DataLoaderDispatcher, DataLoaderShard, Dataset, Explain,
    IterableDataLoader, IterableDataLoaderShard, IterableDataset, PreparedDataLoader,
    PreparedIterableDataLoader, PreparedLoader, RngType, ShardOptions, SyncGlobal, generator_sync,
    synchronize_rng_states,
};
use crate::gradient_clipping::ClipNorm;
use crate::nn::Module;
use crate::optim::{
    AcceleratedOptimizer, AcceleratedScheduler, Adafactor, Adagrad, Adam, AdamW, AdamWScheduleFree,
    ChainedScheduler, DummyOptim, DummyScheduler, Lamb, Optimizer, RateRule, ReduceLROnPlateau,
    RmsProp, Schedule, Scheduler, SchedulerStepping, SequentialLR, Sgd, SgdScheduleFree,
};
use crate::parallel::{self, Together};
use crate::state::PartialState;

/// What [`Accelerator::prepare`] takes: one thing, or a tuple of them.
pub trait Prepare {
    /// What it becomes: the same things in the same order, prepared.
    type Prepared;

    /// Prepares all of it.
    ///
    /// # Errors
    /// Those of the things.
    fn prepare(self, accelerator: &Accelerator) -> Result<Self::Prepared>;
}

/// One thing that can be prepared, in two passes.
///
/// The first makes everything that stands by itself; the second makes schedules, which
/// need all optimizers. Before both, each thing is [described](Self::describe): where DeepSpeed's
/// config is `auto`, it is settled then.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be prepared",
    note = "models, optimizers, data loaders and schedules can; box an optimizer or schedule of \
            your own: `Box<dyn Optimizer>`, `Box<dyn Scheduler>`"
)]
pub trait Preparable {
    /// What the first pass leaves.
    type Staged;
    /// What it becomes.
    type Prepared;

    /// Notes what of the thing matters for others that are prepared with it, before any of them is.
    fn describe(&self, _together: &mut Together) {}

    /// The first pass.
    ///
    /// # Errors
    /// Those of the thing.
    fn stage(self, accelerator: &Accelerator) -> Result<Self::Staged>;

    /// The second pass.
    ///
    /// # Errors
    /// Those of the thing.
    fn finish(staged: Self::Staged, accelerator: &Accelerator) -> Result<Self::Prepared>;
}

impl<M: Module> Preparable for M {
    type Staged = PreparedModel<M>;
    type Prepared = PreparedModel<M>;

    fn describe(&self, together: &mut Together) {
        together.model(self);
    }

    fn stage(self, accelerator: &Accelerator) -> Result<Self::Staged> {
        PreparedModel::for_training(self, accelerator)
    }

    fn finish(staged: Self::Staged, _accelerator: &Accelerator) -> Result<Self::Prepared> {
        Ok(staged)
    }
}

macro_rules! prepare_optimizers {
    ($($type:ty),* $(,)?) => {$(
        impl Preparable for $type {
            type Staged = AcceleratedOptimizer<Self>;
            type Prepared = AcceleratedOptimizer<Self>;

            fn describe(&self, together: &mut Together) {
                together.optimizer(self);
            }

            fn stage(self, accelerator: &Accelerator) -> Result<Self::Staged> {
                stage_optimizer(self, accelerator)
            }

            fn finish(staged: Self::Staged, accelerator: &Accelerator) -> Result<Self::Prepared> {
                finish_optimizer(staged, accelerator)
            }
        }
    )*};
}

prepare_optimizers!(
    Adafactor,
    Adagrad,
    Adam,
    AdamW,
    AdamWScheduleFree,
    Lamb,
    RmsProp,
    Sgd,
    SgdScheduleFree,
);

fn stage_optimizer<O: Optimizer + 'static>(
    optimizer: O,
    accelerator: &Accelerator,
) -> Result<AcceleratedOptimizer<O>> {
    let is_sharded = accelerator.sharding().is_some();
    if is_sharded {
        parallel::check_optimizer(&optimizer)?;
    }
    let state = accelerator.gradient_state().clone();
    let prepared = AcceleratedOptimizer::new(optimizer, state).with_scaler(accelerator.scaler());
    let limit = match accelerator.parallel_plan().map(|plan| plan.clipping) {
        Some(Clipping::Norm(limit)) => Some(limit),
        _ => None,
    };
    let prepared = match is_sharded || limit.is_some() {
        true => {
            let accelerator = accelerator.clone();
            prepared.with_before_step(move |groups| {
                accelerator.rest()?;
                let Some(limit) = limit else { return Ok(()) };
                let all: Vec<_> = groups.iter().collect();
                accelerator
                    .clip_to(&all, limit, ClipNorm::default())
                    .map(drop)
            })
        }
        false => prepared,
    };
    accelerator
        .shared
        .registry
        .optimizers
        .add(prepared.handle());
    Ok(prepared)
}

/// What an optimizer needs that all models are prepared for.
fn finish_optimizer<O: Optimizer + 'static>(
    mut staged: AcceleratedOptimizer<O>,
    accelerator: &Accelerator,
) -> Result<AcceleratedOptimizer<O>> {
    if let Some(plan) = accelerator.parallel_plan() {
        parallel::offload_optimizer(plan, &mut staged, accelerator.state())?;
    }
    Ok(staged)
}

/// A boxed optimizer may be a stand-in.
impl Preparable for Box<dyn Optimizer> {
    type Staged = AcceleratedOptimizer<Self>;
    type Prepared = AcceleratedOptimizer<Self>;

    fn describe(&self, together: &mut Together) {
        together.optimizer(self);
    }

    fn stage(self, accelerator: &Accelerator) -> Result<Self::Staged> {
        let in_its_place = match self.stand_in() {
            Some(dummy) => Some(accelerator.optimizer_for(dummy)?),
            None => None,
        };
        stage_optimizer(in_its_place.unwrap_or(self), accelerator)
    }

    fn finish(staged: Self::Staged, accelerator: &Accelerator) -> Result<Self::Prepared> {
        finish_optimizer(staged, accelerator)
    }
}

impl Preparable for DummyOptim {
    type Staged = AcceleratedOptimizer<Box<dyn Optimizer>>;
    type Prepared = AcceleratedOptimizer<Box<dyn Optimizer>>;

    fn describe(&self, together: &mut Together) {
        together.optimizer(self);
    }

    fn stage(self, accelerator: &Accelerator) -> Result<Self::Staged> {
        stage_optimizer(accelerator.optimizer_for(&self)?, accelerator)
    }

    fn finish(staged: Self::Staged, accelerator: &Accelerator) -> Result<Self::Prepared> {
        finish_optimizer(staged, accelerator)
    }
}

macro_rules! prepare_schedules {
    ($(($($rule:ident)?) $type:ty),* $(,)?) => {$(
        impl$(<$rule: RateRule + 'static>)? Preparable for $type {
            type Staged = Self;
            type Prepared = AcceleratedScheduler<Self>;

            fn describe(&self, together: &mut Together) {
                together.scheduler(self);
            }

            fn stage(self, _accelerator: &Accelerator) -> Result<Self::Staged> {
                Ok(self)
            }

            fn finish(staged: Self::Staged, accelerator: &Accelerator) -> Result<Self::Prepared> {
                Ok(finish_schedule(staged, accelerator))
            }
        }
    )*};
}

prepare_schedules!(
    (R) Schedule<R>,
    () ReduceLROnPlateau,
    () SequentialLR,
    () ChainedScheduler,
);

fn finish_schedule<S: Scheduler + 'static>(
    schedule: S,
    accelerator: &Accelerator,
) -> AcceleratedScheduler<S> {
    let with_optimizer = accelerator.shared.step_scheduler_with_optimizer;
    let prepared = follows_optimizer(schedule, accelerator, with_optimizer);
    accelerator
        .shared
        .registry
        .schedulers
        .add(prepared.handle());
    prepared
}

fn follows_optimizer<S: Scheduler>(
    schedule: S,
    accelerator: &Accelerator,
    step_with_optimizer: bool,
) -> AcceleratedScheduler<S> {
    AcceleratedScheduler::new(
        schedule,
        &accelerator.shared.registry.learning_rates(),
        accelerator.gradient_state().clone(),
        SchedulerStepping {
            step_with_optimizer,
            split_batches: accelerator.shared.dataloader_config.split_batches,
            num_processes: processes(accelerator),
        },
    )
}

/// The schedule that stands for DeepSpeed's: its steps are those of the optimizer, whatever the
/// number of ranks.
fn finish_stand_in(
    dummy: &DummyScheduler,
    accelerator: &Accelerator,
) -> Result<AcceleratedScheduler<Box<dyn Scheduler>>> {
    let schedule = accelerator.schedule_for(dummy)?;
    let prepared = follows_optimizer(schedule, accelerator, true).once_per_update();
    accelerator
        .shared
        .registry
        .schedulers
        .add(prepared.handle());
    Ok(prepared)
}

/// A boxed schedule may be a stand-in.
impl Preparable for Box<dyn Scheduler> {
    type Staged = Self;
    type Prepared = AcceleratedScheduler<Self>;

    fn describe(&self, together: &mut Together) {
        together.scheduler(self);
    }

    fn stage(self, _accelerator: &Accelerator) -> Result<Self::Staged> {
        Ok(self)
    }

    fn finish(staged: Self::Staged, accelerator: &Accelerator) -> Result<Self::Prepared> {
        if let Some(dummy) = staged.stand_in() {
            return finish_stand_in(dummy, accelerator);
        }
        Ok(finish_schedule(staged, accelerator))
    }
}

impl Preparable for DummyScheduler {
    type Staged = Self;
    type Prepared = AcceleratedScheduler<Box<dyn Scheduler>>;

    fn describe(&self, together: &mut Together) {
        together.scheduler(self);
    }

    fn stage(self, _accelerator: &Accelerator) -> Result<Self::Staged> {
        Ok(self)
    }

    fn finish(staged: Self::Staged, accelerator: &Accelerator) -> Result<Self::Prepared> {
        finish_stand_in(&staged, accelerator)
    }
}

impl<D: Dataset, C: Collate<D::Item>> Preparable for DataLoader<D, C>
where
    DataLoaderShard<D, C>: BatchSource + 'static,
{
    type Staged = PreparedDataLoader<D, C>;
    type Prepared = PreparedDataLoader<D, C>;

    fn describe(&self, together: &mut Together) {
        together.loader(self.batch_sampler().batch_size());
    }

    fn stage(self, accelerator: &Accelerator) -> Result<Self::Staged> {
        let options = shard_options(accelerator);
        if accelerator.shared.dataloader_config.dispatch_batches != Some(true) {
            let loader = DataLoaderShard::new(self, options)?;
            accelerator.shared.registry.loaders.add(loader.handle());
            return Ok(PreparedLoader::Shard(loader));
        }
        let whole = DataLoaderShard::new(self, for_rank_0(&options))?;
        dispatched(whole, options, accelerator)
    }

    fn finish(staged: Self::Staged, _accelerator: &Accelerator) -> Result<Self::Prepared> {
        Ok(staged)
    }
}

impl<D: IterableDataset, C: Collate<D::Item>> Preparable for IterableDataLoader<D, C>
where
    IterableDataLoaderShard<D, C>: BatchSource + 'static,
{
    type Staged = PreparedIterableDataLoader<D, C>;
    type Prepared = PreparedIterableDataLoader<D, C>;

    fn describe(&self, together: &mut Together) {
        together.loader(Some(self.batch_size()));
    }

    fn stage(self, accelerator: &Accelerator) -> Result<Self::Staged> {
        let (shared, options) = (&accelerator.shared, shard_options(accelerator));
        let dispatch = shared.dataloader_config.dispatch_batches;
        let by_itself = || self.shards_natively(options.num_processes, options.split_batches);
        if !dispatch.unwrap_or_else(|| shared.device_placement && !by_itself()) {
            let group = shared.state.process_group();
            let loader = IterableDataLoaderShard::new(self, options, group)?;
            accelerator.shared.registry.loaders.add(loader.handle());
            return Ok(PreparedLoader::Shard(loader));
        }
        let whole = IterableDataLoaderShard::new(self, for_rank_0(&options), None)?;
        dispatched(whole, options, accelerator)
    }

    fn finish(staged: Self::Staged, _accelerator: &Accelerator) -> Result<Self::Prepared> {
        Ok(staged)
    }
}

fn shard_options(accelerator: &Accelerator) -> ShardOptions {
    let shared = &accelerator.shared;
    let config = shared.dataloader_config;
    let synchronizes = |kind| accelerator.rng_types().contains(&kind);
    let group = shared.state.process_group();
    ShardOptions {
        num_processes: processes(accelerator),
        process_index: accelerator.process_index(),
        split_batches: config.split_batches,
        even_batches: accelerator.even_batches(),
        use_seedable_sampler: config.use_seedable_sampler,
        data_seed: config.data_seed,
        device: shared.device_placement.then(|| accelerator.device()),
        non_blocking: config.non_blocking,
        sync_generator: group
            .filter(|_| synchronizes(RngType::Generator))
            .map(|_| generator_sync(&shared.state)),
        sync_global: group.and_then(|_| global_sync(accelerator)),
        explain: group.map(|_| explain(&shared.state)),
        progress: shared.gradient_state.progress().clone(),
    }
}

fn explain(state: &PartialState) -> Explain {
    let state = state.clone();
    Box::new(move |error| state.explain(error))
}

/// The options for a loader that one rank reads whole, inside of what deals out.
fn for_rank_0(options: &ShardOptions) -> ShardOptions {
    ShardOptions {
        use_seedable_sampler: options.use_seedable_sampler,
        data_seed: options.data_seed,
        ..ShardOptions::default()
    }
}

fn dispatched<S: BatchSource + 'static>(
    whole: S,
    options: ShardOptions,
    accelerator: &Accelerator,
) -> Result<PreparedLoader<S>> {
    let group = accelerator.state().process_group().cloned();
    let loader = DataLoaderDispatcher::new(whole, options, group)?;
    accelerator.shared.registry.loaders.add(loader.handle());
    Ok(PreparedLoader::Dispatcher(loader))
}

/// Sets the global generators of the accelerator's kinds to rank 0's state, if there are any.
fn global_sync(accelerator: &Accelerator) -> Option<SyncGlobal> {
    let kinds: Vec<RngType> = accelerator
        .rng_types()
        .iter()
        .copied()
        .filter(|&kind| kind != RngType::Generator)
        .collect();
    let state = accelerator.state().clone();
    (!kinds.is_empty())
        .then(|| -> SyncGlobal { Box::new(move || synchronize_rng_states(&state, &kinds, None)) })
}

fn processes(accelerator: &Accelerator) -> NonZeroUsize {
    NonZeroUsize::new(accelerator.num_processes()).unwrap_or(NonZeroUsize::MIN)
}

impl<P: Preparable> Prepare for P {
    type Prepared = P::Prepared;

    fn prepare(self, accelerator: &Accelerator) -> Result<Self::Prepared> {
        let mut together = Together::default();
        self.describe(&mut together);
        accelerator.settle(together)?;
        P::finish(self.stage(accelerator)?, accelerator)
    }
}

macro_rules! prepare_tuple {
    ($($name:ident $index:tt),+) => {
        impl<$($name: Preparable),+> Prepare for ($($name,)+) {
            type Prepared = ($($name::Prepared,)+);

            fn prepare(self, accelerator: &Accelerator) -> Result<Self::Prepared> {
                let mut together = Together::default();
                $(self.$index.describe(&mut together);)+
                accelerator.settle(together)?;
                let staged = ($(self.$index.stage(accelerator)?,)+);
                Ok(($($name::finish(staged.$index, accelerator)?,)+))
            }
        }
    };
}

prepare_tuple!(A 0, B 1);
prepare_tuple!(A 0, B 1, C 2);
prepare_tuple!(A 0, B 1, C 2, D 3);
prepare_tuple!(A 0, B 1, C 2, D 3, E 4);
prepare_tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
prepare_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
prepare_tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
