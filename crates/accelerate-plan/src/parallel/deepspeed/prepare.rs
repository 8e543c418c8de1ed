//! From a config to a job: everything that is still `auto` is filled in.

use std::num::NonZeroUsize;

use super::{
    BatchSizes, BatchTerm, DeepSpeedConfig, NamedOptimizer, NamedScheduler, OptimizerRole, Roles,
    compile::plan,
    document::{Document, number},
};
use crate::{
    config::Value,
    parallel::{
        GivenOptimizer, GivenScheduler, JobFacts, ParallelPlan, PlanError, PrepareFacts,
        UnresolvedAuto,
    },
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
    /// one.
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
        Ok(DeepSpeedJob {
            plan: plan(&config, job)?,
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

fn fill(document: &mut Document, key: &str, value: Value, how: &str) {
    if document.is_auto(key) {
        document.set(key, value, Origin::Detected(how.to_owned()));
    }
}

fn int(number: u64) -> Value {
    i64::try_from(number).map_or_else(|_| Value::Text(number.to_string()), Value::Int)
}

fn fill_batch(
    document: &mut Document,
    job: &JobFacts,
    facts: &PrepareFacts,
) -> Result<BatchSizes> {
    let is_silent = !document.has(TRAIN) && !document.has(MICRO);
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
        true => Ok((size / job.world_size.get() as u64, "batch size of the loaders / ranks")),
    }
}

/// Ranks that each read other samples.
fn data_parallel(job: &JobFacts, facts: &PrepareFacts) -> Result<NonZeroUsize> {
    let (world, shared) = (job.world_size.get(), facts.sequence_parallel.get());
    let ranks = NonZeroUsize::new(world / shared);
    let ranks = ranks.filter(|_| world.is_multiple_of(shared));
    ranks.ok_or_else(|| PlanError::Divisor {
        what: "parallelism_config_sp_size",
        size: shared as u64,
        origin: Origin::Program,
        world_size: world,
    })
}

/// What does not depend on anything.
fn fill_constants(document: &mut Document) {
    let how = "what `auto` means";
    for (key, value) in [
        ("gradient_clipping", Value::Float(1.0)),
        (
            "zero_optimization.stage3_gather_16bit_weights_on_model_save",
            Value::Bool(false),
        ),
        (
            "zero_optimization.stage3_max_live_parameters",
            Value::Int(1_000_000_000),
        ),
        (
            "zero_optimization.stage3_max_reuse_distance",
            Value::Int(1_000_000_000),
        ),
    ] {
        fill(document, key, value, how);
    }
}

/// Keys that depend on the hidden size.
static BY_HIDDEN_SIZE: [&str; 3] = [
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold",
];

fn fill_by_hidden_size(document: &mut Document, facts: &PrepareFacts) {
    let Some(hidden) = facts.hidden_size() else {
        return;
    };
    let square = hidden.saturating_mul(hidden);
    // As Python's `int(0.9 * h * h)`, which multiplies from the left.
    let most = 0.9 * hidden as f64 * hidden as f64;
    let how = format!("hidden size {hidden}");
    let values = [square, most as u64, hidden.saturating_mul(10)];
    for (key, value) in BY_HIDDEN_SIZE.into_iter().zip(values) {
        fill(document, key, int(value), &how);
    }
}

fn fill_optimizer(document: &mut Document, given: GivenOptimizer) {
    let GivenOptimizer::Dummy { lr, weight_decay } = given else {
        return;
    };
    let how = "the `DummyOptim`";
    fill(document, "optimizer.params.lr", Value::Float(lr), how);
    let key = "optimizer.params.weight_decay";
    fill(document, key, Value::Float(weight_decay), how);
}

fn fill_scheduler(document: &mut Document, job: &JobFacts, facts: &PrepareFacts) {
    let GivenScheduler::Dummy {
        total_num_steps,
        warmup_num_steps,
        ..
    } = facts.scheduler
    else {
        return;
    };
    let how = "the `DummyScheduler`";
    let key = |name: &str| format!("scheduler.params.{name}");
    fill(document, &key("warmup_min_lr"), Value::Int(0), how);
    fill(document, &key("warmup_num_steps"), int(warmup_num_steps), how);
    let of_config = document.get("optimizer.params.lr").and_then(number);
    if let Some(lr) = of_config.or(facts.optimizer.lr()) {
        let how = "the learning rate of the optimizer";
        fill(document, &key("warmup_max_lr"), Value::Float(lr), how);
    }
    if let Some(total) = total_num_steps {
        let steps = match facts.split_batches {
            true => total,
            false => total.div_ceil(job.world_size.get() as u64),
        };
        fill(document, &key("total_num_steps"), int(steps), how);
    }
}

/// Refuses keys that are still open. What nobody uses may stay open.
fn unless_open(document: &Document, roles: Roles) -> Result<()> {
    let is_used = |key: &String| {
        let is_unused_optimizer =
            key.starts_with("optimizer.") && roles.optimizer == OptimizerRole::Nobody;
        let is_unused_scheduler = key.starts_with("scheduler.")
            && roles.scheduler == super::SchedulerRole::Nobody;
        !is_unused_optimizer && !is_unused_scheduler
    };
    let open = document.autos().into_iter().filter(is_used);
    let keys: Vec<_> = open
        .map(|key| UnresolvedAuto {
            origin: document.origin(&key),
            needs: needs(&key),
            key,
        })
        .collect();
    match keys.is_empty() {
        true => Ok(()),
        false => Err(PlanError::Unresolved { keys }),
    }
}

/// What would say what a key is.
fn needs(key: &str) -> &'static str {
    match key {
        key if BY_HIDDEN_SIZE.contains(&key) => {
            "the hidden size of the model, which its configuration does not say"
        }
        "optimizer.params.lr" | "optimizer.params.weight_decay" => "a `DummyOptim` in its place",
        "scheduler.params.total_num_steps" => "a `DummyScheduler` with the number of steps in all",
        "scheduler.params.warmup_min_lr"
        | "scheduler.params.warmup_max_lr"
        | "scheduler.params.warmup_num_steps" => "a `DummyScheduler` in its place",
        _ => "a value: nothing fills it in",
    }
}
