use std::cell::Cell;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use accelerate_plan::MixedPrecision;
use accelerate_plan::env::{self, Environment};
use accelerate_plan::parallel::{
    self as plan, Accumulation, DeepSpeedConfig, DeepSpeedPlugins, DeepSpeedSettings, JobFacts,
    LossScaling, ParallelPlan, ShardingSettings,
};
use accelerate_torch::Backend;

use super::{Accelerator, Shared};
use crate::accumulation::GradientAccumulationPlugin;
use crate::checkpoint::{BackgroundSaves, Project, ProjectConfiguration, StateHooks};
use crate::data::RngType;
use crate::gradient_state::GradientState;
use crate::memory;
use crate::metrics::{Recorder, StepMetricsKwargs};
use crate::parallel::{DeepSpeed, DistributedDataParallelKwargs, Plugins};
use crate::precision::{AutocastKwargs, GradScalerKwargs, Precision, PrecisionOptions};
use crate::profile::ProfileKwargs;
use crate::recording::Recording;
use crate::registry::Registry;
use crate::state::{LeaveSignal, PartialState, StateOptions};
use crate::tracking::{LogWith, Trackers};
use crate::{Error, Result};

/// How prepared loaders divide their batches.
///
/// # Source
/// `accelerate.DataLoaderConfiguration`, as far as this version has loaders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataLoaderConfiguration {
    /// Takes a loader's batch size as that of all ranks together and cuts each batch.
    pub split_batches: bool,
    /// Fills the last step up with samples from the start, so that all ranks take equal steps.
    pub even_batches: bool,
    /// Shuffles in an order that is a function of seed and epoch alone.
    pub use_seedable_sampler: bool,
    /// The seed of that order; `None` takes the seed of libtorch's global generator.
    pub data_seed: Option<u64>,
    /// Whether a copy to the device may still run when the batch is handed out.
    pub non_blocking: bool,
    /// Whether a saved state holds where the prepared loaders stand. A prepared loader
    /// has `state_dict` in any case.
    pub use_stateful_dataloader: bool,
    /// Whether rank 0 reads for all ranks and deals out what it reads. `None` does so for
    /// iterable data sets that cannot give each rank a part of its own, if batches are placed.
    pub dispatch_batches: Option<bool>,
}

impl Default for DataLoaderConfiguration {
    fn default() -> Self {
        Self {
            split_batches: false,
            even_batches: true,
            use_seedable_sampler: false,
            data_seed: None,
            non_blocking: false,
            use_stateful_dataloader: false,
            dispatch_batches: None,
        }
    }
}

/// Settings of an [`Accelerator`] to be.
#[derive(Debug, Clone)]
pub struct AcceleratorBuilder {
    state: StateOptions,
    device_placement: bool,
    gradient_accumulation_steps: NonZeroUsize,
    gradient_accumulation_plugin: Option<GradientAccumulationPlugin>,
    mixed_precision: Option<MixedPrecision>,
    precision: PrecisionOptions,
    dataloader_config: DataLoaderConfiguration,
    rng_types: Vec<RngType>,
    step_scheduler_with_optimizer: bool,
    ddp: DistributedDataParallelKwargs,
    plan: Option<ParallelPlan>,
    /// By name.
    deepspeed: Vec<(String, DeepSpeedSettings)>,
    project: ProjectConfiguration,
    log_with: Vec<LogWith>,
    leave_signals: Vec<LeaveSignal>,
    profile: ProfileKwargs,
    step_metrics: StepMetricsKwargs,
}

impl Default for AcceleratorBuilder {
    fn default() -> Self {
        Self {
            state: StateOptions::default(),
            device_placement: true,
            gradient_accumulation_steps: NonZeroUsize::MIN,
            gradient_accumulation_plugin: None,
            mixed_precision: None,
            precision: PrecisionOptions::default(),
            dataloader_config: DataLoaderConfiguration::default(),
            rng_types: vec![RngType::Generator],
            step_scheduler_with_optimizer: true,
            ddp: DistributedDataParallelKwargs::default(),
            plan: None,
            deepspeed: Vec::new(),
            project: ProjectConfiguration::default(),
            log_with: Vec::new(),
            leave_signals: vec![LeaveSignal::Terminate],
            profile: ProfileKwargs::default(),
            step_metrics: StepMetricsKwargs::default(),
        }
    }
}

impl AcceleratorBuilder {
    /// Stays on the CPU even where there is a GPU.
    #[must_use]
    pub fn cpu(mut self, cpu: bool) -> Self {
        self.state.cpu = cpu;
        self
    }

    /// The backend that carries the communication, instead of the device's own.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.state.backend = Some(backend);
        self
    }

    /// How long any operation between ranks may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.state.timeout = Some(timeout);
        self
    }

    /// Whether models and batches are moved to the device; on if not changed.
    #[must_use]
    pub fn device_placement(mut self, placement: bool) -> Self {
        self.device_placement = placement;
        self
    }

    /// Over how many batches gradients are accumulated.
    ///
    /// `ACCELERATE_GRADIENT_ACCUMULATION_STEPS`, which the launcher sets, wins.
    #[must_use]
    pub fn gradient_accumulation_steps(mut self, steps: NonZeroUsize) -> Self {
        self.gradient_accumulation_steps = steps;
        self
    }

    /// How gradients are accumulated, with every switch.
    ///
    /// The launcher's number of steps does not change it. It stands instead of
    /// [`gradient_accumulation_steps`](Self::gradient_accumulation_steps): both are an error.
    #[must_use]
    pub fn gradient_accumulation_plugin(mut self, plugin: GradientAccumulationPlugin) -> Self {
        self.gradient_accumulation_plugin = Some(plugin);
        self
    }

    /// The precision to compute in; if not set, `ACCELERATE_MIXED_PRECISION`, which the launcher sets.
    #[must_use]
    pub fn mixed_precision(mut self, precision: MixedPrecision) -> Self {
        self.mixed_precision = Some(precision);
        self
    }

    /// How autocast behaves.
    #[must_use]
    pub fn autocast_kwargs(mut self, kwargs: AutocastKwargs) -> Self {
        self.precision.autocast = kwargs;
        self
    }

    /// How the loss is scaled in fp16.
    #[must_use]
    pub fn grad_scaler_kwargs(mut self, kwargs: GradScalerKwargs) -> Self {
        self.precision.grad_scaler = kwargs;
        self
    }

    /// Whether half-sized outputs of prepared models become float32; on if not changed.
    #[must_use]
    pub fn convert_outputs_to_fp32(mut self, convert: bool) -> Self {
        self.precision.convert_outputs_to_fp32 = convert;
        self
    }

    /// Whether fp16 really computes in float16 on a CPU, which is slow; off if not changed,
    /// and fp16 is float32 there.
    #[must_use]
    pub fn fp16_on_cpu(mut self, fp16: bool) -> Self {
        self.precision.fp16_on_cpu = fp16;
        self
    }

    /// How prepared loaders divide their batches.
    #[must_use]
    pub fn dataloader_config(mut self, config: DataLoaderConfiguration) -> Self {
        self.dataloader_config = config;
        self
    }

    /// The random generators that get rank 0's state whenever an epoch of a prepared
    /// loader begins; the loader's own if not changed.
    ///
    /// [`RngType::Generator`] is left out for loaders that have none.
    #[must_use]
    pub fn rng_types(mut self, kinds: impl IntoIterator<Item = RngType>) -> Self {
        self.rng_types = kinds.into_iter().collect();
        self
    }

    /// Whether schedules move on with their optimizers; on if not changed.
    #[must_use]
    pub fn step_scheduler_with_optimizer(mut self, with_optimizer: bool) -> Self {
        self.step_scheduler_with_optimizer = with_optimizer;
        self
    }

    /// What [`Accelerator::profile`] records.
    #[must_use]
    pub fn profile_kwargs(mut self, kwargs: ProfileKwargs) -> Self {
        self.profile = kwargs;
        self
    }

    /// What becomes of the times of steps, see [`Accelerator::step_metrics`].
    #[must_use]
    pub fn step_metrics_kwargs(mut self, kwargs: StepMetricsKwargs) -> Self {
        self.step_metrics = kwargs;
        self
    }

    /// The settings of data parallelism.
    #[must_use]
    pub fn ddp(mut self, kwargs: DistributedDataParallelKwargs) -> Self {
        self.ddp = kwargs;
        self
    }

    /// How models are spread over the ranks of the job, where each is to keep only a part of one.
    ///
    /// A process by itself has no use for it and trains the whole model. If not set, it is the plan
    /// that the launcher's variables ask for: `accelerate launch --use_fsdp` or `--use_deepspeed`.
    ///
    /// Where the plan says over how many batches gradients are added up, that counts.
    ///
    /// # Source
    /// `Accelerator(fsdp_plugin=..)` and `Accelerator(deepspeed_plugin=..)`, both of which are plans.
    #[must_use]
    pub fn parallel_plan(mut self, plan: ParallelPlan) -> Self {
        self.plan = Some(plan);
        self
    }

    /// How models are spread over the ranks of the job, in the words of DeepSpeed.
    ///
    /// What is `auto` there is settled when things are prepared. It stands instead of
    /// [`parallel_plan`](Self::parallel_plan): both are an error. If not set, the launcher's variables
    /// say it: `accelerate launch --use_deepspeed`.
    ///
    /// # Source
    /// `Accelerator(deepspeed_plugin=..)`.
    #[must_use]
    pub fn deepspeed(self, settings: DeepSpeedSettings) -> Self {
        self.deepspeed_plugins([("default", settings)])
    }

    /// As [`deepspeed`](Self::deepspeed), with several settings by name: a teacher that is only evaluated
    /// has others than the student, say. The first one is selected;
    /// [`select_deepspeed_plugin`](Accelerator::select_deepspeed_plugin) changes that.
    ///
    /// # Source
    /// `Accelerator(deepspeed_plugins={..})`.
    #[must_use]
    pub fn deepspeed_plugins<N: Into<String>>(
        mut self,
        plugins: impl IntoIterator<Item = (N, DeepSpeedSettings)>,
    ) -> Self {
        let plugins = plugins.into_iter();
        self.deepspeed = plugins
            .map(|(name, settings)| (name.into(), settings))
            .collect();
        self
    }

    /// The project's folder; short for a [`ProjectConfiguration`] of no more than that.
    #[must_use]
    pub fn project_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.project.project_dir = Some(folder.into());
        self
    }

    /// Where checkpoints go, how they are named and how many stay.
    #[must_use]
    pub fn project_config(mut self, project: ProjectConfiguration) -> Self {
        self.project = project;
        self
    }

    /// Where trackers write files; the project's folder if not set.
    #[must_use]
    pub fn logging_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.project.logging_dir = Some(folder.into());
        self
    }

    /// What to log with: trackers by name or [`LoggerType`](crate::tracking::LoggerType), `all` that are
    /// available, trackers of the program's own, and any mix.
    ///
    /// ```
    /// use accelerate::Accelerator;
    /// use accelerate::tracking::{Local, LogWith, LoggerType};
    ///
    /// let builder = Accelerator::builder()
    ///     .log_with([LogWith::from("wandb"), LoggerType::TensorBoard.into(), LogWith::own(Local::new())]);
    /// # let _ = builder;
    /// ```
    #[must_use]
    pub fn log_with<T: Into<LogWith>>(mut self, trackers: impl IntoIterator<Item = T>) -> Self {
        self.log_with = trackers.into_iter().map(Into::into).collect();
        self
    }

    /// On which signals the job leaves, once the program asks
    /// [`should_leave`](Accelerator::should_leave); SIGTERM if not changed.
    #[must_use]
    pub fn leave_on(mut self, signals: impl IntoIterator<Item = LeaveSignal>) -> Self {
        self.leave_signals = signals.into_iter().collect();
        self
    }

    /// Makes the accelerator.
    ///
    /// # Collective
    /// In a job of several processes the first one waits until all of them make it.
    ///
    /// # Errors
    /// As [`PartialState::new`]; [`Error::Tracking`] for a tracker that nobody knows, or that needs a
    /// folder and has none; a precision that this device cannot do; two settings of
    /// accumulation that contradict each other; [`Error::Sharding`] for settings of FSDP or DeepSpeed
    /// that make no plan.
    pub fn build(self) -> Result<Accelerator> {
        let environment = Environment::from_process();
        let gradient_state = self.gradient_state(&environment)?;
        let precision = match self.mixed_precision {
            Some(precision) => precision,
            None => environment.get(&env::MIXED_PRECISION)?.unwrap_or_default(),
        };
        let deepspeed = self.deepspeed_config(&environment)?;
        // DeepSpeed's config may be the one that says it.
        let told = deepspeed.as_ref().and_then(|(told, job)| {
            let (_, config) = told.active()?;
            Some((config, job))
        });
        let precision = match told {
            Some((config, _)) if precision != MixedPrecision::Fp8 => config.mixed_precision(),
            _ => precision,
        };
        let state = PartialState::with_options(&self.state)?;
        let options = PrecisionOptions {
            loss_scaling: self.loss_scaling(told)?,
            ..self.precision
        };
        let precision = Precision::new(precision, state.device(), options)?;
        let deepspeed = deepspeed.map(|(told, job)| plugins(told, &job, &precision));
        let deepspeed = deepspeed.transpose()?;
        let plan = self.plan(
            &environment,
            &gradient_state,
            &precision,
            deepspeed.as_ref(),
        )?;
        memory::keep_for_next_step(state.device(), &environment)?;
        let trackers = self.trackers()?;
        if let Some(recording) = Recording::asked_for(&environment, state.process_index())? {
            gradient_state.progress().record(recording);
        }
        let recorder = Recorder::new(&state, self.step_metrics);
        gradient_state.progress().steps().record_with(recorder);
        Ok(Accelerator {
            shared: Rc::new(Shared {
                precision,
                state,
                gradient_state,
                device_placement: self.device_placement,
                dataloader_config: self.dataloader_config,
                even_batches: Cell::new(self.dataloader_config.even_batches),
                rng_types: self.rng_types,
                step_scheduler_with_optimizer: self.step_scheduler_with_optimizer,
                ddp: self.ddp,
                plan,
                deepspeed,
                registry: Registry::default(),
                project: Project::new(self.project),
                state_hooks: StateHooks::default(),
                saves: BackgroundSaves::default(),
                trackers,
                trigger: Cell::default(),
                leave_signals: self.leave_signals,
                profile: self.profile,
                step_metrics: self.step_metrics,
            }),
        })
    }

    /// By which rule a plan scales the loss.
    fn loss_scaling(
        &self,
        deepspeed: Option<(&DeepSpeedConfig, &JobFacts)>,
    ) -> Result<LossScaling> {
        Ok(match (&self.plan, deepspeed) {
            (Some(plan), _) => plan.precision.loss_scaling,
            (None, Some((config, job))) => config.preview(job)?.0.precision.loss_scaling,
            (None, None) => LossScaling::Accelerator,
        })
    }

    fn trackers(&self) -> Result<Trackers> {
        let project = &self.project;
        let logging_dir = project
            .logging_dir
            .as_ref()
            .or(project.project_dir.as_ref());
        Trackers::new(&self.log_with, logging_dir.cloned())
    }

    /// The plan that the program gave, or else the one that the launcher's variables ask for.
    fn plan(
        &self,
        environment: &Environment,
        gradient_state: &GradientState,
        precision: &Precision,
        deepspeed: Option<&Plugins>,
    ) -> Result<Option<ParallelPlan>> {
        let plan = match (&self.plan, deepspeed.and_then(Plugins::plan)) {
            // What DeepSpeed's config leaves open is known when things are prepared.
            (Some(plan), _) | (None, Some(plan)) => plan.clone(),
            (None, None) => {
                let job = self.job(environment)?;
                let Some(settings) = ShardingSettings::from_environment(environment, &job)? else {
                    return Ok(None);
                };
                let mut plan = settings.preview(&job)?.plan;
                if stays_as_loaded(precision) {
                    plan.precision = plan::Precision::AS_LOADED;
                }
                for note in &plan.notes {
                    tracing::warn!("{note}");
                }
                plan
            }
        };
        if let Accumulation::Steps(steps) = plan.accumulation
            && let Ok(steps) = NonZeroUsize::try_from(steps)
        {
            let told = gradient_state.num_steps();
            if told != NonZeroUsize::MIN && told != steps {
                tracing::warn!(
                    "gradients are added up over {steps} batches, as the plan says, and not over \
                     {told} as the accelerator was told"
                );
            }
            gradient_state.set_num_steps(steps);
        }
        Ok(Some(plan))
    }

    /// The configs of DeepSpeed that the program gave, or else the one that the launcher's variables ask
    /// for, and the job that they are for.
    fn deepspeed_config(
        &self,
        environment: &Environment,
    ) -> Result<Option<(DeepSpeedPlugins, JobFacts)>> {
        if self.plan.is_some() {
            return match self.deepspeed.is_empty() {
                true => Ok(None),
                false => Err(Error::Argument {
                    operation: "Accelerator",
                    expected: "`parallel_plan` or `deepspeed`".to_owned(),
                    found: "both".to_owned(),
                }),
            };
        }
        let job = self.job(environment)?;
        let told = match self.deepspeed.as_slice() {
            [] => match ShardingSettings::from_environment(environment, &job)? {
                Some(ShardingSettings::DeepSpeed(settings)) => {
                    DeepSpeedPlugins::one(settings.resolve(&job.mixed_precision)?)
                }
                _ => return Ok(None),
            },
            given => {
                let configs = given.iter().map(|(name, settings)| {
                    let config = settings.resolve(&job.mixed_precision)?;
                    Ok((name.clone(), config))
                });
                DeepSpeedPlugins::new(configs.collect::<Result<Vec<_>>>()?)?
            }
        };
        refuse_cut_sequences(environment)?;
        Ok(Some((told, job)))
    }

    /// The job as the launcher tells of it, in the program's precision.
    fn job(&self, environment: &Environment) -> Result<JobFacts> {
        let job = JobFacts::from_environment(environment)?;
        Ok(match self.mixed_precision {
            Some(precision) => job.with_precision(precision),
            None => job,
        })
    }

    fn gradient_state(&self, environment: &Environment) -> Result<GradientState> {
        let steps = self.gradient_accumulation_steps;
        match self.gradient_accumulation_plugin {
            Some(_) if steps != NonZeroUsize::MIN => Err(Error::Argument {
                operation: "Accelerator",
                expected: "`gradient_accumulation_steps` or `gradient_accumulation_plugin`"
                    .to_owned(),
                found: format!("both; set `num_steps: {steps}` in the plugin"),
            }),
            Some(plugin) => Ok(GradientState::with_plugin(plugin)),
            None => {
                let launched = environment.get(&env::GRADIENT_ACCUMULATION_STEPS)?;
                let launched = launched.and_then(|steps| NonZeroUsize::try_from(steps).ok());
                Ok(GradientState::new(launched.unwrap_or(steps)))
            }
        }
    }
}

/// Whether a lower precision is asked for in which the device does not compute: then it is not what
/// shards are gathered in either.
fn stays_as_loaded(precision: &Precision) -> bool {
    precision.mixed_precision() != MixedPrecision::No && !precision.is_native_amp()
}

/// The configs of a job, with what became of them still open.
fn plugins(told: DeepSpeedPlugins, job: &JobFacts, precision: &Precision) -> Result<Plugins> {
    let mut sessions = Vec::new();
    for name in told.names() {
        let config = told.get(name)?.clone();
        sessions.push(DeepSpeed::new(
            config,
            job.clone(),
            stays_as_loaded(precision),
        ));
    }
    Plugins::new(told, sessions)
}

/// Sequences of one batch that several ranks share are not cut by this version, whose batches would be
/// another size then.
fn refuse_cut_sequences(environment: &Environment) -> Result<()> {
    match environment.get(&env::PARALLELISM_SP_SIZE)? {
        Some(size) if size.get() > 1 => Err(Error::Argument {
            operation: "Accelerator",
            expected: "`parallelism_config_sp_size` 1: this version does not cut sequences"
                .to_owned(),
            found: size.to_string(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_not_shared() -> Result<()> {
        let of = |size: &str| {
            let size = size.to_owned();
            Environment::from_pairs([("PARALLELISM_CONFIG_SP_SIZE".to_owned(), size)])
        };
        refuse_cut_sequences(&of("1"))?;
        let text = refuse_cut_sequences(&of("2")).unwrap_err().to_string();
        assert!(text.contains("does not cut sequences"), "{text}");
        Ok(())
    }
}
