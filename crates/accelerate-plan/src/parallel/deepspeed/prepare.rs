//! From a config to a job: everything that is still `auto` is filled in.

use std::num::NonZeroUsize;

use super::{
    BatchSizes, BatchTerm, DeepSpeedConfig, NamedOptimizer, NamedScheduler, OptimizerRole, Roles,
    SchedulerRole,
    autos::{
        fill, fill_by_hidden_size, fill_constants, fill_optimizer, fill_scheduler, int, unless_open,
    },
    compile::plan,
    document::Document,
};
use crate::{
    config::Value,
    parallel::{GivenScheduler, JobFacts, ParallelPlan, PlanError, PrepareFacts},
    settings::Origin,
};

type Result<T> = std::result::Result<T, PlanError>;

const TRAIN: &str = "train_batch_size";
const MICRO: &str = "train_micro_batch_size_per_gpu";
const STEPS: &str = "gradient_accumulation_steps";

/// What DeepSpeed's config means for things that are prepared together.
#[derive(Debug, Clone, PartialEq)]
pub struct DeepSpeedJob {
    /// The plan.
    pub plan: ParallelPlan,
    /// The sizes of batches.
    pub batch: BatchSizes,
    /// Who provides optimizer and schedule.
    pub roles: Roles,
    /// The optimizer of the config, where it provides it.
    pub optimizer: Option<NamedOptimizer>,
    /// The schedule of the config, if it names one.
    pub scheduler: Option<NamedScheduler>,
    /// Whether an optimizer of the program that DeepSpeed does not know is welcome.
    pub allows_any_optimizer: bool,
    /// Whether an optimizer of the program is replaced by the one for the CPU where its state is
    /// offloaded.
    pub replaces_offloaded_optimizer: bool,
    /// The config with nothing `auto` left in it.
    pub config: DeepSpeedConfig,
}

impl DeepSpeedConfig {
    /// Fills in what is still `auto`, checks the sizes of batches and the roles, and makes the plan.
    ///
    /// | key | value |
    /// | --- | --- |
    /// | `train_micro_batch_size_per_gpu` | the smallest (or largest) batch size of the loaders |
    /// | `gradient_accumulation_steps` | that of the accelerator |
    /// | `train_batch_size` | micro x accumulation x ranks |
    /// | `gradient_clipping` | 1 |
    /// | `reduce_bucket_size` | the square of the hidden size |
    /// | `stage3_prefetch_bucket_size` | 0.9 of that |
    /// | `stage3_param_persistence_threshold` | 10 times the hidden size |
    /// | `stage3_max_live_parameters`, `stage3_max_reuse_distance` | 1e9 |
    /// | `stage3_gather_16bit_weights_on_model_save` | false |
    /// | `lr`, `weight_decay` of the optimizer | those of the stand-in |
    /// | warm-up and steps of the schedule | those of the stand-in |
    ///
    /// # Errors
    /// - [`PlanError::Role`] if optimizer and schedule do not fit the config.
    /// - [`PlanError::NoBatchSize`], [`PlanError::BatchSizes`].
    /// - [`PlanError::Unresolved`] with every key that nothing fills in.
    /// - [`PlanError::Value`], [`PlanError::Settings`], [`PlanError::NoFolder`],
    ///   [`PlanError::Divisor`] for what makes no plan.
    ///
    /// # Source
    /// `Accelerator._prepare_deepspeed`. Differs: all open keys are told at once; without any size the
    /// loaders' batch size counts; the warm-up ends at the learning rate of the config where it says
    /// one; a schedule that nothing stands for is not made, which a note says.
    pub fn prepare(&self, job: &JobFacts, facts: &PrepareFacts) -> Result<DeepSpeedJob> {
        let roles = Roles::decide(
            self.names_optimizer(),
            self.names_scheduler(),
            facts.optimizer,
            facts.scheduler,
        )
        .map_err(PlanError::Role)?;
        let mut config = self.clone();
        let document = &mut config.document;
        let batch = fill_batch(document, job, facts)?;
        fill_constants(document);
        fill_by_hidden_size(document, facts);
        fill_optimizer(document, facts.optimizer);
        fill_scheduler(document, job, facts);
        if roles.optimizer == OptimizerRole::Program {
            let key = "zero_allow_untested_optimizer";
            document.set(key, Value::Bool(true), Origin::Default);
        }
        unless_open(document, roles)?;
        let document = &config.document;
        let optimizer = match roles.optimizer {
            OptimizerRole::Config => NamedOptimizer::of(document, config.stage)?,
            _ => None,
        };
        let mut plan = plan(&config, job)?;
        let asked = u64::from(facts.accumulation.get());
        if batch.accumulation.value != asked {
            plan.notes.push(format!(
                "gradient accumulation is {} ({}), not {asked} as the accelerator was told",
                batch.accumulation.value, batch.accumulation.origin
            ));
        }
        let trains = roles.optimizer != OptimizerRole::Nobody;
        if trains && roles.scheduler == SchedulerRole::Nobody && config.names_scheduler() {
            plan.notes.push(
                "`scheduler` has no effect: no `DummyScheduler` is prepared in its place"
                    .to_owned(),
            );
        }
        Ok(DeepSpeedJob {
            plan,
            batch,
            roles,
            optimizer,
            scheduler: match facts.scheduler {
                GivenScheduler::Nothing => None,
                _ => NamedScheduler::of(document)?,
            },
            allows_any_optimizer: document.flag("zero_allow_untested_optimizer", false)?,
            replaces_offloaded_optimizer: document.flag("zero_force_ds_cpu_optimizer", true)?,
            config,
        })
    }

    /// The plan as far as it is known before a model is prepared, and the keys that are open until
    /// then: they have DeepSpeed's own defaults in the plan.
    ///
    /// # Errors
    /// As [`DeepSpeedConfig::prepare`], but for what depends on the model, loaders and optimizer.
    pub fn preview(&self, job: &JobFacts) -> Result<(ParallelPlan, Vec<String>)> {
        let mut config = self.clone();
        fill_constants(&mut config.document);
        let open = config.document.autos();
        for key in &open {
            config.document.set(key, Value::Null, Origin::Default);
        }
        Ok((plan(&config, job)?, open))
    }
}

fn fill_batch(document: &mut Document, job: &JobFacts, facts: &PrepareFacts) -> Result<BatchSizes> {
    let is_silent = !document.has(MICRO) && (!document.has(TRAIN) || document.is_auto(TRAIN));
    if document.is_auto(MICRO) || is_silent {
        let (size, how) = of_loaders(job, facts)?;
        document.set(MICRO, int(size), Origin::Detected(how.to_owned()));
    }
    fill(
        document,
        STEPS,
        int(u64::from(facts.accumulation.get())),
        "the accelerator's accumulation",
    );
    if document.is_auto(TRAIN) {
        document.set(TRAIN, Value::Null, Origin::Default);
    }
    let ranks = data_parallel(job, facts)?;
    let batch = BatchSizes::solve(
        term(document, TRAIN)?,
        term(document, MICRO)?,
        term(document, STEPS)?,
        ranks,
    )?;
    for (key, term) in [
        (TRAIN, &batch.train),
        (MICRO, &batch.micro),
        (STEPS, &batch.accumulation),
    ] {
        if !document.has(key) {
            document.set(key, int(term.value), term.origin.clone());
        }
    }
    Ok(batch)
}

fn term(document: &Document, key: &str) -> Result<Option<BatchTerm>> {
    match document.has(key) {
        false => Ok(None),
        true => Ok(Some(BatchTerm {
            value: match document.whole(key, 0)? {
                0 => return Err(document.refuse(key, "a whole number, at least 1")),
                value => value,
            },
            origin: document.origin(key),
        })),
    }
}

/// The batch size of one rank, and how it was found.
fn of_loaders(job: &JobFacts, facts: &PrepareFacts) -> Result<(u64, &'static str)> {
    let unknown = |why| Err(PlanError::NoBatchSize { why });
    let sizes: Option<Vec<NonZeroUsize>> = facts.batch_sizes.iter().copied().collect();
    let Some(sizes) = sizes else {
        return unknown("a loader has no fixed batch size");
    };
    let (size, how) = match facts.smallest_batch_counts {
        true => (sizes.iter().min(), "smallest batch size of the loaders"),
        false => (sizes.iter().max(), "largest batch size of the loaders"),
    };
    let Some(size) = size.map(|size| size.get() as u64) else {
        return unknown("no loader is prepared, and the DeepSpeed config leaves it open");
    };
    match facts.split_batches {
        false => Ok((size, how)),
        true => Ok((
            size / job.world_size.get() as u64,
            "batch size of the loaders / ranks",
        )),
    }
}

/// Ranks that each read other samples.
fn data_parallel(job: &JobFacts, facts: &PrepareFacts) -> Result<NonZeroUsize> {
    let (world, shared) = (job.world_size.get(), facts.sequence_parallel.get());
    let ranks = NonZeroUsize::new(world / shared);
    let ranks = ranks.filter(|_| world.is_multiple_of(shared));
    ranks.ok_or(PlanError::Divisor {
        what: "parallelism_config_sp_size",
        size: shared as u64,
        origin: Origin::Program,
        world_size: world,
    })
}
