//! From the environment of a rank, or the settings of a launch, to a plan.

use std::{fmt, num::NonZeroUsize};

use super::{
    DeepSpeedSettings, FsdpSettings, JobFacts, Mesh, ParallelPlan, PlanError, PrepareFacts,
};
use crate::{
    env::{Environment, USE_DEEPSPEED, USE_FSDP},
    launch::{Strategy, check_mesh, uses_mesh},
    settings::{
        Key, Layer, Origin, PARALLELISM_CP_SIZE, PARALLELISM_DP_REPLICATE_SIZE,
        PARALLELISM_DP_SHARD_SIZE, PARALLELISM_SP_BACKEND, PARALLELISM_SP_SIZE,
        PARALLELISM_TP_SIZE, Settings, Sourced, SpBackend,
    },
};

type Result<T> = std::result::Result<T, PlanError>;

/// What settings say about sharding, in the words in which they say it.
#[derive(Debug, Clone, PartialEq)]
pub enum ShardingSettings {
    /// In those of FSDP.
    Fsdp {
        /// The settings.
        settings: Box<FsdpSettings>,
        /// The grid, if other settings lay it out.
        mesh: Option<Sourced<Mesh>>,
    },
    /// In those of DeepSpeed.
    DeepSpeed(Box<DeepSpeedSettings>),
}

impl ShardingSettings {
    /// What a rank's environment says; [`None`] if it does not ask for sharding.
    ///
    /// # Errors
    /// [`PlanError::Settings`] for a variable with a text that is not allowed, and for a mesh of
    /// another size than the job.
    pub fn from_environment(env: &Environment, job: &JobFacts) -> Result<Option<Self>> {
        if env.get(&USE_FSDP)? == Some(true) {
            let settings = Settings::resolve([Layer::from_env(env)?]);
            return Ok(Some(Self::Fsdp {
                settings: Box::new(FsdpSettings::from_environment(env)?),
                mesh: mesh(&settings, job)?,
            }));
        }
        match env.get(&USE_DEEPSPEED)? {
            Some(true) => {
                let settings = DeepSpeedSettings::from_environment(env)?;
                Ok(Some(Self::DeepSpeed(Box::new(settings))))
            }
            _ => Ok(None),
        }
    }

    /// What the settings of a launch say; [`None`] for a kind of job that shards nothing by them.
    ///
    /// # Errors
    /// [`PlanError::Settings`] for a mesh of another size than the job.
    pub fn of_launch(
        settings: &Settings,
        strategy: Strategy,
        job: &JobFacts,
    ) -> Result<Option<Self>> {
        Ok(match strategy {
            Strategy::Fsdp => Some(Self::Fsdp {
                settings: Box::new(FsdpSettings::of_launch(settings)),
                mesh: mesh(settings, job)?,
            }),
            Strategy::DeepSpeed => {
                Some(Self::DeepSpeed(Box::new(DeepSpeedSettings::of_launch(settings))))
            }
            _ => None,
        })
    }

    /// The plan for things that are prepared together.
    ///
    /// # Errors
    /// Those of [`FsdpSettings::compile`], or of [`DeepSpeedSettings::resolve`] and
    /// [`DeepSpeedConfig::prepare`](super::DeepSpeedConfig::prepare).
    pub fn plan(&self, job: &JobFacts, facts: &PrepareFacts) -> Result<ParallelPlan> {
        match self {
            Self::Fsdp { settings, mesh } => settings.compile(job, mesh.clone()),
            Self::DeepSpeed(settings) => {
                let config = settings.resolve(&job.mixed_precision)?;
                Ok(config.prepare(job, facts)?.plan)
            }
        }
    }

    /// The plan as far as it is known before anything is prepared.
    ///
    /// # Errors
    /// As [`ShardingSettings::plan`], but for what depends on what is prepared.
    pub fn preview(&self, job: &JobFacts) -> Result<Preview> {
        let (plan, open) = match self {
            Self::Fsdp { settings, mesh } => (settings.compile(job, mesh.clone())?, Vec::new()),
            Self::DeepSpeed(settings) => {
                settings.resolve(&job.mixed_precision)?.preview(job)?
            }
        };
        Ok(Preview { plan, open })
    }
}

impl ParallelPlan {
    /// The plan that a rank's environment asks for; [`None`] if it does not ask for sharding. So a
    /// program obeys `--use_fsdp`, `--use_deepspeed` and all flags of theirs.
    ///
    /// `facts` is what is prepared together. DeepSpeed's `auto` values come from there; FSDP needs
    /// nothing of it.
    ///
    /// # Errors
    /// Those of [`ShardingSettings::from_environment`] and [`ShardingSettings::plan`].
    ///
    /// ```
    /// use accelerate_plan::{
    ///     env::Environment,
    ///     parallel::{JobFacts, ParallelPlan, PrepareFacts, Sharded},
    /// };
    ///
    /// let env = Environment::from_pairs([
    ///     ("ACCELERATE_USE_FSDP", "true"),
    ///     ("FSDP_SHARDING_STRATEGY", "SHARD_GRAD_OP"),
    ///     ("RANK", "0"),
    ///     ("WORLD_SIZE", "2"),
    ///     ("LOCAL_RANK", "0"),
    ///     ("LOCAL_WORLD_SIZE", "2"),
    /// ]);
    /// let job = JobFacts::from_environment(&env)?;
    /// let plan = ParallelPlan::from_environment(&env, &job, &PrepareFacts::default())?;
    /// assert_eq!(plan.map(|plan| plan.sharded), Some(Sharded::Gradients));
    /// # Ok::<(), accelerate_plan::parallel::PlanError>(())
    /// ```
    pub fn from_environment(
        env: &Environment,
        job: &JobFacts,
        facts: &PrepareFacts,
    ) -> Result<Option<Self>> {
        let settings = ShardingSettings::from_environment(env, job)?;
        settings.map(|settings| settings.plan(job, facts)).transpose()
    }
}

/// A plan before anything is prepared.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    /// The plan.
    pub plan: ParallelPlan,
    /// Keys of DeepSpeed's config that are decided when a model is prepared; the plan has DeepSpeed's
    /// defaults for them.
    pub open: Vec<String>,
}

impl fmt::Display for Preview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.plan)?;
        match self.open.is_empty() {
            true => Ok(()),
            false => write!(
                f,
                "\nfound out when a model is prepared: {}",
                self.open.join(", ")
            ),
        }
    }
}

/// The grid that settings lay out, if they do. Where DeepSpeed cuts the sequences, its ranks shard as
/// all others do.
fn mesh(settings: &Settings, job: &JobFacts) -> Result<Option<Sourced<Mesh>>> {
    if !uses_mesh(settings) {
        return Ok(None);
    }
    let world_size = Sourced {
        value: job.world_size,
        origin: Origin::Detected("processes of the job".to_owned()),
    };
    check_mesh(settings, &world_size)?;
    let size = |key: &Key<NonZeroUsize>| settings.get(key).unwrap_or(NonZeroUsize::MIN);
    let is_by_deepspeed = settings.get(&PARALLELISM_SP_BACKEND) == Some(SpBackend::DeepSpeed);
    let sequence = match is_by_deepspeed {
        true => NonZeroUsize::MIN,
        false => size(&PARALLELISM_SP_SIZE),
    };
    let mesh = Mesh {
        replicate: size(&PARALLELISM_DP_REPLICATE_SIZE),
        shard: size(&PARALLELISM_DP_SHARD_SIZE),
        context: size(&PARALLELISM_CP_SIZE).saturating_mul(sequence),
        tensor: size(&PARALLELISM_TP_SIZE),
        ..Mesh::sharded(NonZeroUsize::MIN)
    };
    let keys = [
        &PARALLELISM_DP_REPLICATE_SIZE,
        &PARALLELISM_DP_SHARD_SIZE,
        &PARALLELISM_CP_SIZE,
        &PARALLELISM_TP_SIZE,
    ];
    let is_laid_out = mesh.world_size() == job.world_size && mesh.world_size().get() > 1;
    Ok(is_laid_out.then(|| {
        let given = keys.iter().map(|key| settings.origin(key));
        let origin = given.into_iter().find(|origin| origin.is_given());
        Sourced {
            value: mesh,
            origin: origin.cloned().unwrap_or(Origin::Default),
        }
    }))
}
