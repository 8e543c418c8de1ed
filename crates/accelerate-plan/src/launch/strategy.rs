//! What kind of job the settings ask for.

use std::fmt;

use crate::{
    Error, Result,
    settings::{
        COMPUTE_ENVIRONMENT, CPU, ComputeEnvironment, DISTRIBUTED_TYPE, DistributedType, Key,
        MULTI_GPU, Origin, Settings, Sourced, TPU, USE_CPU, USE_DEEPSPEED, USE_FSDP,
        USE_MEGATRON_LM,
    },
};

/// What kind of job it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// One process, or copies of the model that share their gradients.
    Plain,
    /// Sharded, told in the words of FSDP.
    Fsdp,
    /// Sharded, told in the words of DeepSpeed.
    DeepSpeed,
    /// Sharded, told in the words of Megatron-LM.
    MegatronLm,
    /// On TPUs.
    Tpu,
    /// As a job of Amazon SageMaker.
    SageMaker,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "data parallel, or one process",
            Self::Fsdp => "FSDP",
            Self::DeepSpeed => "DeepSpeed",
            Self::MegatronLm => "Megatron-LM",
            Self::Tpu => "TPU",
            Self::SageMaker => "Amazon SageMaker",
        })
    }
}

impl Strategy {
    /// The kind of job in one word, to be compared between machines.
    pub fn in_one_word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Fsdp => "FSDP",
            Self::DeepSpeed => "DeepSpeed",
            Self::MegatronLm => "Megatron-LM",
            Self::Tpu => "TPU",
            Self::SageMaker => "SageMaker",
        }
    }
}

/// Switches that name a kind of job, of which at most one may be given in one place.
static SWITCHES: [(&Key<bool>, Strategy); 6] = [
    (&CPU, Strategy::Plain),
    (&MULTI_GPU, Strategy::Plain),
    (&TPU, Strategy::Tpu),
    (&USE_DEEPSPEED, Strategy::DeepSpeed),
    (&USE_FSDP, Strategy::Fsdp),
    (&USE_MEGATRON_LM, Strategy::MegatronLm),
];

impl Strategy {
    /// The kind of job that the settings ask for: by flag, else by variable, else by file.
    ///
    /// `--cpu` and `--multi_gpu` choose no strategy, only the devices, so that a file's still
    /// counts after `--cpu`, but for TPUs, and `--use_megatron_lm` may stand beside either.
    ///
    /// # Errors
    /// [`Error::Exclusive`] if two are asked for in one place.
    pub fn of(settings: &Settings) -> Result<Self> {
        Self::sourced(settings).map(|strategy| strategy.value)
    }

    /// As [`Strategy::of`], with where it was asked for.
    ///
    /// # Errors
    /// As [`Strategy::of`].
    pub fn sourced(settings: &Settings) -> Result<Sourced<Self>> {
        let by = |value, origin: &Origin| {
            let origin = origin.clone();
            Ok(Sourced { value, origin })
        };
        for is_here in [is_flag, is_variable] {
            if let Some((key, strategy)) = switched_on(settings, is_here)?
                && key.name() != CPU.name()
            {
                return by(strategy, settings.origin(key));
            }
        }
        if settings.get(&COMPUTE_ENVIRONMENT) == Some(ComputeEnvironment::AmazonSagemaker) {
            return by(Self::SageMaker, settings.origin(&COMPUTE_ENVIRONMENT));
        }
        let strategy = match settings.get(&DISTRIBUTED_TYPE) {
            Some(DistributedType::Fsdp) => Self::Fsdp,
            Some(DistributedType::DeepSpeed) => Self::DeepSpeed,
            Some(DistributedType::MegatronLm) => Self::MegatronLm,
            Some(DistributedType::Xla) if !settings.is_on(&CPU) => Self::Tpu,
            _ => Self::Plain,
        };
        by(strategy, settings.origin(&DISTRIBUTED_TYPE))
    }
}

/// Whether the job stays on the CPU, and who said so.
pub fn cpu(settings: &Settings) -> Sourced<bool> {
    let multi_gpu = settings.given(&MULTI_GPU).filter(|given| given.value);
    let said = [settings.given(&CPU), settings.given(&USE_CPU)]
        .into_iter()
        .flatten();
    if let Some(yes) = said.filter(|said| said.value).find(|said| {
        // A flag for devices beats a file for the CPU.
        multi_gpu.is_none() || is_flag(&said.origin)
    }) {
        return yes;
    }
    let by_kind = settings.sourced(&DISTRIBUTED_TYPE);
    match by_kind.filter(|kind| kind.value == DistributedType::MultiCpu && multi_gpu.is_none()) {
        Some(kind) => Sourced {
            value: true,
            origin: kind.origin,
        },
        None => Sourced {
            value: false,
            origin: Origin::Default,
        },
    }
}

fn switched_on(
    settings: &Settings,
    is_here: fn(&Origin) -> bool,
) -> Result<Option<(&'static Key<bool>, Strategy)>> {
    let is_on = |key: &'static Key<bool>| settings.is_on(key) && is_here(settings.origin(key));
    let mut on = SWITCHES.iter().filter(|(key, _)| is_on(key));
    match (on.next(), on.next()) {
        (Some((_, Strategy::Plain)), Some(second @ (_, Strategy::MegatronLm))) => Ok(Some(*second)),
        (Some((first, _)), Some((second, _))) => Err(Error::Exclusive {
            first: settings.origin(first).clone(),
            second: settings.origin(second).clone(),
        }),
        (found, _) => Ok(found.copied()),
    }
}

fn is_flag(origin: &Origin) -> bool {
    matches!(origin, Origin::Flag(_))
}

fn is_variable(origin: &Origin) -> bool {
    matches!(origin, Origin::Variable(_))
}
