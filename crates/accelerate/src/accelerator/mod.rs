//! The façade: it asks the rooms below and decides nothing itself.

mod accumulate;
mod builder;
mod checkpointing;
mod clip;
mod data;
mod deepspeed;
mod display;
mod join;
mod leaving;
mod local_sgd;
mod memory;
mod metrics;
mod operations;
mod pipeline;
mod precision;
mod prepare;
mod prepared_model;
mod process;
mod profile;
mod step_metrics;
mod tracking;
mod triggers;

use std::cell::Cell;
use std::fmt;
use std::panic::Location;
use std::rc::Rc;

use accelerate_plan::parallel::{Dialect, ParallelPlan};
use tch::{Device, Tensor};

use crate::checkpoint::{BackgroundSaves, Project, StateHooks};
use crate::collectives::Site;
use crate::data::RngType;
use crate::gradient_state::GradientState;
use crate::metrics::StepMetricsKwargs;
use crate::optim::LearningRates;
use crate::parallel::{self, DistributedDataParallelKwargs, Plugins};
use crate::precision::Precision;
use crate::profile::ProfileKwargs;
use crate::registry::Registry;
use crate::state::{DistributedType, LeaveSignal, PartialState};
use crate::tracking::Trackers;
use crate::{Error, Result};

pub use builder::{AcceleratorBuilder, DataLoaderConfiguration};
pub use clip::ClippedParameters;
pub use leaving::LEFT_EARLY;
pub use prepare::{Preparable, Prepare};
pub use prepared_model::PreparedModel;

/// What makes one training program run on one process or on many: a shared handle.
///
/// ```
/// use accelerate::data::DataLoader;
/// use accelerate::nn::{Factory, Forward, Linear};
/// use accelerate::optim::{AdamW, AdamWConfig, Optimizer, Scheduler, linear_schedule_with_warmup};
/// use accelerate::tch::{Kind, Tensor};
/// use accelerate::Accelerator;
///
/// let samples: Vec<(f64, f64)> = (0..8).map(|i| (f64::from(i), f64::from(2 * i))).collect();
/// let model = Linear::new(1, 1, &Factory::default())?;
/// let parameters: Vec<Tensor> =
///     accelerate::nn::Module::parameters(&model).iter().map(|p| p.tensor().shallow_clone()).collect();
/// let optimizer = AdamW::new(parameters, AdamWConfig { lr: 0.1, ..Default::default() })?;
/// let scheduler = linear_schedule_with_warmup(&optimizer, 0, 4);
/// let batches = DataLoader::builder(samples).batch_size(4).shuffle(true).build()?;
///
/// let accelerator = Accelerator::new()?;
/// let (model, mut optimizer, batches, mut scheduler) =
///     accelerator.prepare((model, optimizer, batches, scheduler))?;
/// for batch in &batches {
///     let (x, y) = batch?;
///     let x = x.f_to_kind(Kind::Float)?.f_unsqueeze(1)?;
///     let loss = model.call(x)?.f_sub(&y.f_unsqueeze(1)?)?.f_square()?.f_mean(Kind::Float)?;
///     accelerator.backward(&loss)?;
///     optimizer.step()?;
///     scheduler.step()?;
///     optimizer.zero_grad()?;
/// }
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Source
/// `accelerate.Accelerator`.
#[derive(Clone)]
pub struct Accelerator {
    shared: Rc<Shared>,
}

struct Shared {
    state: PartialState,
    gradient_state: GradientState,
    precision: Precision,
    device_placement: bool,
    dataloader_config: DataLoaderConfiguration,
    /// What holds instead of the configuration's `even_batches`: it may change.
    even_batches: Cell<bool>,
    rng_types: Vec<RngType>,
    step_scheduler_with_optimizer: bool,
    ddp: DistributedDataParallelKwargs,
    /// How models are spread over ranks; none for whole ones on each.
    plan: Option<ParallelPlan>,
    /// DeepSpeed's configs, where the job is told in its words.
    deepspeed: Option<Plugins>,
    /// What was prepared and still exists.
    registry: Registry,
    project: Project,
    state_hooks: StateHooks,
    saves: BackgroundSaves,
    trackers: Trackers,
    /// Whether this rank has set the trigger.
    trigger: Cell<bool>,
    /// On which signals the job leaves, once the program asks whether it should.
    leave_signals: Vec<LeaveSignal>,
    profile: ProfileKwargs,
    step_metrics: StepMetricsKwargs,
}

impl Accelerator {
    /// An accelerator with the launcher's settings.
    ///
    /// # Collective
    /// In a job of several processes the first one waits until all of them make it.
    ///
    /// # Errors
    /// As [`PartialState::new`].
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Settings of one's own.
    #[must_use]
    pub fn builder() -> AcceleratorBuilder {
        AcceleratorBuilder::default()
    }

    /// Makes a model, optimizer, loader or schedule, or a tuple of them, work on all ranks.
    ///
    /// They come back in the order in which they were given. Schedules are prepared
    /// last, whatever their place, so that they find their optimizers.
    ///
    /// # Collective
    /// Every rank calls this with the same things.
    ///
    /// # Errors
    /// Those of the things: a model without parameters to train, one that differs over
    /// ranks, an empty data set.
    pub fn prepare<P: Prepare>(&self, objects: P) -> Result<P::Prepared> {
        objects.prepare(self)
    }

    /// Prepares a model that is not to be trained: moved to the device, and no more. Where a plan
    /// shards parameters, each rank keeps its part of them, and gathers units as they compute.
    ///
    /// # Collective
    /// Where a plan shards parameters, every rank calls this, and the model together with the others.
    ///
    /// # Errors
    /// If it cannot be moved; as [`ShardedModel::for_evaluation`](crate::parallel::ShardedModel::for_evaluation).
    pub fn prepare_for_evaluation<M: crate::nn::Module>(
        &self,
        model: M,
    ) -> Result<PreparedModel<M>> {
        PreparedModel::for_evaluation_alone(model, self)
    }

    /// The model without what trains it in parallel.
    ///
    /// In mixed precision it still computes as it did when prepared;
    /// [`unwrap_model_with`](Self::unwrap_model_with) and [`PreparedModel::into_inner`] give
    /// it back as it was before.
    #[must_use]
    pub fn unwrap_model<M: crate::nn::Module>(&self, model: PreparedModel<M>) -> M {
        self.unwrap_model_with(model, true)
    }

    /// Adds the gradients of `loss` to the parameters', averaged over ranks where it is due.
    ///
    /// The loss is divided by the number of accumulation steps, and multiplied by the loss
    /// scale where there is one. Batches that differ in their number of real items are better
    /// served by [`backward_normalized`](crate::accumulation::AccumulationScope::backward_normalized).
    ///
    /// # Shapes
    /// - loss: `[]`
    ///
    /// # Collective
    /// Every rank calls this, unless gradients stay local.
    ///
    /// # Errors
    /// A loss without a graph; what a communication hook reports;
    /// [`Error::CollectiveIncomplete`] names ranks that are missing, and
    /// [`Error::UnusedParameters`] parameters that had no gradient on others, which were waited
    /// for. A rank without them learns it at its next forward pass.
    #[track_caller]
    pub fn backward(&self, loss: &Tensor) -> Result<()> {
        self.gradient_state().progress().record_loss(loss, false)?;
        let steps = self.gradient_state().num_steps().get();
        let loss = match i64::try_from(steps) {
            Ok(1) => loss.shallow_clone(),
            Ok(steps) => loss.f_div_scalar(steps)?,
            Err(_) => {
                return Err(Error::Argument {
                    operation: "backward",
                    expected: "a number of accumulation steps below 2^63".to_owned(),
                    found: steps.to_string(),
                });
            }
        };
        let loss = match self.scaler() {
            Some(scaler) => scaler.scale(&loss)?,
            None => loss,
        };
        let site = Site::Code(Location::caller());
        let models = self.shared.registry.strategies();
        parallel::backward(self.state(), site, &models, &loss)?;
        self.gradient_state().progress().steps().backward();
        Ok(())
    }

    /// The plan by which models are spread over ranks, where there is one.
    #[must_use]
    pub fn parallel_plan(&self) -> Option<&ParallelPlan> {
        let told = self.shared.deepspeed.as_ref().and_then(Plugins::plan);
        told.or(self.shared.plan.as_ref())
    }

    /// The plan, where prepared models are cut into shards by it.
    fn sharding(&self) -> Option<&ParallelPlan> {
        let has_peers = self.state().process_group().is_some();
        self.parallel_plan().filter(|plan| match has_peers {
            true => plan.is_sharded(),
            false => parallel::shards_alone(plan),
        })
    }

    /// Lets every rank have no more than its part of models in shards, with the gradients of it.
    fn rest(&self) -> Result<()> {
        let sharded = self.shared.registry.sharded();
        sharded.iter().try_for_each(|model| model.rest())
    }

    /// Rank, world, device and process control.
    #[must_use]
    pub fn state(&self) -> &PartialState {
        &self.shared.state
    }

    /// Where gradient accumulation and the loops over loaders stand.
    #[must_use]
    pub fn gradient_state(&self) -> &GradientState {
        &self.shared.gradient_state
    }

    /// The device that this process computes on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.state().device()
    }

    /// How the processes work together.
    #[must_use]
    pub fn distributed_type(&self) -> DistributedType {
        match self.sharding().map(|plan| plan.dialect) {
            Some(Dialect::Fsdp1 | Dialect::Fsdp2) => DistributedType::Fsdp,
            Some(Dialect::DeepSpeed) => DistributedType::DeepSpeed,
            _ => self.state().distributed_type(),
        }
    }

    /// The number of processes in the job.
    #[must_use]
    pub fn num_processes(&self) -> usize {
        self.state().num_processes()
    }

    /// This process's rank in the job.
    #[must_use]
    pub fn process_index(&self) -> usize {
        self.state().process_index()
    }

    /// This process's rank on its machine.
    #[must_use]
    pub fn local_process_index(&self) -> usize {
        self.state().local_process_index()
    }

    /// Whether this is rank 0 of the job.
    #[must_use]
    pub fn is_main_process(&self) -> bool {
        self.state().is_main_process()
    }

    /// Whether this is rank 0 of its machine.
    #[must_use]
    pub fn is_local_main_process(&self) -> bool {
        self.state().is_local_main_process()
    }

    /// Whether this is the last rank of the job.
    #[must_use]
    pub fn is_last_process(&self) -> bool {
        self.state().is_last_process()
    }

    /// Whether gradients are complete at this step.
    #[must_use]
    pub fn sync_gradients(&self) -> bool {
        self.gradient_state().sync_gradients()
    }

    /// Whether any prepared optimizer skipped its last step.
    #[must_use]
    pub fn optimizer_step_was_skipped(&self) -> bool {
        let rates = self.shared.registry.learning_rates();
        rates.iter().any(LearningRates::was_skipped)
    }
}

impl fmt::Debug for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accelerator")
            .field("state", self.state())
            .field("gradient_state", self.gradient_state())
            .field("precision", self.precision())
            .field("dataloader_config", &self.shared.dataloader_config)
            .finish_non_exhaustive()
    }
}
