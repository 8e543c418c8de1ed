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
use crate::nn::Module;
use crate::optim::{
    AcceleratedOptimizer, AcceleratedScheduler, Adafactor, Adagrad, Adam, AdamW, AdamWScheduleFree,
    ChainedScheduler, Lamb, Optimizer, RateRule, ReduceLROnPlateau, RmsProp, Schedule, Scheduler,
    SchedulerStepping, SequentialLR, Sgd, SgdScheduleFree,
};
use crate::parallel;
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
/// need all optimizers.
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

            fn stage(self, accelerator: &Accelerator) -> Result<Self::Staged> {
                if accelerator.sharding().is_some() {
                    parallel::check_optimizer(&self)?;
                }
                let state = accelerator.gradient_state().clone();
                let prepared =
                    AcceleratedOptimizer::new(self, state).with_scaler(accelerator.scaler());
                let prepared = match accelerator.parallel_plan().map(|plan| plan.clipping) {
                    Some(Clipping::Norm(limit)) => {
                        let accelerator = accelerator.clone();
                        prepared.with_before_step(move |groups| {
                            let all: Vec<_> = groups.iter().collect();
                            accelerator.clip_grad_norm(&all, limit).map(drop)
                        })
                    }
                    _ => prepared,
                };
                accelerator.shared.registry.optimizers.add(prepared.handle());
                Ok(prepared)
            }

            fn finish(staged: Self::Staged, _accelerator: &Accelerator) -> Result<Self::Prepared> {
                Ok(staged)
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
    Box<dyn Optimizer>
);

macro_rules! prepare_schedules {
    ($(($($rule:ident)?) $type:ty),* $(,)?) => {$(
        impl$(<$rule: RateRule + 'static>)? Preparable for $type {
            type Staged = Self;
            type Prepared = AcceleratedScheduler<Self>;

            fn stage(self, _accelerator: &Accelerator) -> Result<Self::Staged> {
                Ok(self)
            }

            fn finish(staged: Self::Staged, accelerator: &Accelerator) -> Result<Self::Prepared> {
                let prepared = AcceleratedScheduler::new(
                    staged,
                    &accelerator.shared.registry.learning_rates(),
                    accelerator.gradient_state().clone(),
                    SchedulerStepping {
                        step_with_optimizer: accelerator.shared.step_scheduler_with_optimizer,
                        split_batches: accelerator.shared.dataloader_config.split_batches,
                        num_processes: processes(accelerator),
                    },
                );
                accelerator.shared.registry.schedulers.add(prepared.handle());
                Ok(prepared)
            }
        }
    )*};
}

prepare_schedules!(
    (R) Schedule<R>,
    () ReduceLROnPlateau,
    () SequentialLR,
    () ChainedScheduler,
    () Box<dyn Scheduler>,
);

impl<D: Dataset, C: Collate<D::Item>> Preparable for DataLoader<D, C>
where
    DataLoaderShard<D, C>: BatchSource + 'static,
{
    type Staged = PreparedDataLoader<D, C>;
    type Prepared = PreparedDataLoader<D, C>;

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
        P::finish(self.stage(accelerator)?, accelerator)
    }
}

macro_rules! prepare_tuple {
    ($($name:ident $index:tt),+) => {
        impl<$($name: Preparable),+> Prepare for ($($name,)+) {
            type Prepared = ($($name::Prepared,)+);

            fn prepare(self, accelerator: &Accelerator) -> Result<Self::Prepared> {
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
