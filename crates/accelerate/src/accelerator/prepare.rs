use std::num::NonZeroUsize;

use accelerate_torch::{Generator, ProcessGroup};

use super::{Accelerator, PreparedModel};
use crate::Result;
use crate::data::{Collate, DataLoader, DataLoaderShard, Dataset, ShardOptions, SyncGenerator};
use crate::nn::Module;
use crate::optim::{
    AcceleratedOptimizer, AcceleratedScheduler, AdamW, LambdaLR, Optimizer, Scheduler,
    SchedulerStepping, Sgd,
};

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
                let rates = self.learning_rates().clone();
                accelerator.shared.optimizers.borrow_mut().push(rates);
                Ok(AcceleratedOptimizer::new(self, accelerator.gradient_state().clone()))
            }

            fn finish(staged: Self::Staged, _accelerator: &Accelerator) -> Result<Self::Prepared> {
                Ok(staged)
            }
        }
    )*};
}

prepare_optimizers!(AdamW, Sgd, Box<dyn Optimizer>);

macro_rules! prepare_schedules {
    ($($type:ty),* $(,)?) => {$(
        impl Preparable for $type {
            type Staged = Self;
            type Prepared = AcceleratedScheduler<Self>;

            fn stage(self, _accelerator: &Accelerator) -> Result<Self::Staged> {
                Ok(self)
            }

            fn finish(staged: Self::Staged, accelerator: &Accelerator) -> Result<Self::Prepared> {
                Ok(AcceleratedScheduler::new(
                    staged,
                    &accelerator.shared.optimizers.borrow(),
                    accelerator.gradient_state().clone(),
                    SchedulerStepping {
                        step_with_optimizer: accelerator.shared.step_scheduler_with_optimizer,
                        split_batches: accelerator.shared.dataloader_config.split_batches,
                        num_processes: processes(accelerator),
                    },
                ))
            }
        }
    )*};
}

prepare_schedules!(LambdaLR, Box<dyn Scheduler>);

impl<D: Dataset, C: Collate<D::Item>> Preparable for DataLoader<D, C> {
    type Staged = DataLoaderShard<D, C>;
    type Prepared = DataLoaderShard<D, C>;

    fn stage(self, accelerator: &Accelerator) -> Result<Self::Staged> {
        let shared = &accelerator.shared;
        let config = shared.dataloader_config;
        DataLoaderShard::new(
            self,
            ShardOptions {
                num_processes: processes(accelerator),
                process_index: accelerator.process_index(),
                split_batches: config.split_batches,
                even_batches: config.even_batches,
                use_seedable_sampler: config.use_seedable_sampler,
                data_seed: config.data_seed,
                device: shared.device_placement.then(|| accelerator.device()),
                non_blocking: config.non_blocking,
                sync_generator: shared.state.process_group().map(sync_from_rank_0),
                progress: shared.gradient_state.progress().clone(),
            },
        )
    }

    fn finish(staged: Self::Staged, _accelerator: &Accelerator) -> Result<Self::Prepared> {
        Ok(staged)
    }
}

/// Sets a generator to rank 0's state, through the group's CPU backend.
fn sync_from_rank_0(group: &ProcessGroup) -> SyncGenerator {
    let group = group.clone();
    Box::new(move |generator: &Generator| {
        let state = generator.state()?;
        group.broadcast(&state, 0)?;
        Ok(generator.set_state(&state)?)
    })
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
