//! Why settings make no plan.

use std::{fmt, path::PathBuf};

use super::deepspeed::{Ambiguity, BatchSizes, RoleMistake};
use crate::{
    Contradiction, Error, Hint,
    config::ConfigError,
    settings::{Origin, Sourced},
};

/// Why settings make no plan, or why a plan does not fit a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A setting cannot be read, or excludes another one.
    #[error(transparent)]
    Settings(#[from] Error),

    /// DeepSpeed's config cannot be read, or has keys or values that mean nothing.
    #[error("cannot understand the config of DeepSpeed")]
    Config(#[source] Box<ConfigError>),

    /// What was given as DeepSpeed's config is no config.
    #[error(
        "`{found}` is no config of DeepSpeed ({origin}): expected the path of a file, JSON, or JSON \
         as URL-safe base64"
    )]
    NoConfig {
        /// What was found, cut after some characters.
        found: String,
        /// Where it stands.
        origin: Origin,
    },

    /// DeepSpeed's config does not say what is sharded.
    #[error("config file `{}` has no key `zero_optimization`", path.display())]
    NoZeroOptimization {
        /// The file.
        path: PathBuf,
    },

    /// Values that are given twice.
    #[error("{} also given in the DeepSpeed config `{}`: {}", they_are(.keys), path.display(), Listed(keys))]
    Ambiguous {
        /// DeepSpeed's config.
        path: PathBuf,
        /// Every value that is given twice, in the order of the documentation.
        keys: Vec<Ambiguity>,
    },

    /// `auto` where nothing says what it is.
    #[error("{}", unresolved(.keys))]
    Unresolved {
        /// Every such key.
        keys: Vec<UnresolvedAuto>,
    },

    /// Values of DeepSpeed's config that a program says otherwise.
    #[error("the DeepSpeed config and the program disagree: {}", Listed(mismatches))]
    Mismatches {
        /// Every such key.
        mismatches: Vec<Mismatch>,
    },

    /// Sizes of batches that do not fit together.
    #[error("{0}")]
    BatchSizes(Box<BatchSizes>),

    /// Batch sizes cannot be found out.
    #[error("the micro batch size is not known: {why}")]
    NoBatchSize {
        /// Why not.
        why: &'static str,
    },

    /// Optimizer or schedule prepared in a way that does not fit DeepSpeed's config.
    #[error("{0}")]
    Role(RoleMistake),

    /// Machines of different sizes, or a group that does not divide the ranks.
    #[error(
        "`{what}` ({origin}) needs machines with equally many processes: the job has {world_size}, \
         this machine {local_world_size}, and {world_size} is no multiple of {local_world_size}"
    )]
    UnevenMachines {
        /// The setting.
        what: &'static str,
        /// Where it stands.
        origin: Origin,
        /// Processes of the job.
        world_size: usize,
        /// Processes on this machine.
        local_world_size: usize,
    },

    /// A group size that does not divide the ranks.
    #[error("`{what}` is {size} ({origin}): expected a divisor of the {world_size} ranks of the job")]
    Divisor {
        /// The setting.
        what: &'static str,
        /// Its value.
        size: u64,
        /// Where it stands.
        origin: Origin,
        /// Ranks of the job.
        world_size: usize,
    },

    /// Offload to disk without a folder.
    #[error("`{what}` is `nvme` ({origin}), but `{path_key}` names no folder")]
    NoFolder {
        /// The setting.
        what: &'static str,
        /// Where it stands.
        origin: Origin,
        /// The setting that must name a folder.
        path_key: &'static str,
    },

    /// A value of DeepSpeed's config that cannot be used.
    #[error("`{key}` is `{found}` ({origin}): expected {expected}")]
    Value {
        /// The key, with dots between.
        key: String,
        /// The value.
        found: String,
        /// What may stand there.
        expected: String,
        /// Where it stands.
        origin: Origin,
    },

    /// Types that FSDP was told that are none, or not enough.
    #[error(
        "`{found}` is no precision policy: expected `float32`, `float16` or `bfloat16`, or a map with \
         one of these for each of `{}`", .keys.join("`, `")
    )]
    PrecisionPolicy {
        /// What was found.
        found: String,
        /// The keys that a map must have.
        keys: [&'static str; 3],
    },

    /// Classes that the model does not have.
    #[error(
        "no module of the model has class {}: it has {}", quoted(.missing.iter().map(|class| &class.name)),
        quoted(present)
    )]
    UnknownClasses {
        /// The classes that were asked for and are missing.
        missing: Vec<MissingClass>,
        /// The classes of the model's modules, sorted.
        present: Vec<String>,
    },

    /// There is no plugin of this name.
    #[error("no DeepSpeed plugin is called `{name}`: there are {}", quoted(known))]
    UnknownPlugin {
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
        /// The known name that is most like it.
        nearest: Option<String>,
    },

    /// A set of plugins without a plugin.
    #[error("expected at least one DeepSpeed plugin, found none")]
    NoPlugin,
}

impl From<ConfigError> for PlanError {
    fn from(error: ConfigError) -> Self {
        Self::Config(Box::new(error))
    }
}

/// A key of DeepSpeed's config that is `auto`, and what would say what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnresolvedAuto {
    /// The key, with dots between.
    pub key: String,
    /// Where it stands.
    pub origin: Origin,
    /// What is needed to resolve it.
    pub needs: &'static str,
}

/// A key of DeepSpeed's config and what a program says instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The key, with dots between.
    pub key: String,
    /// The value in the config.
    pub found: String,
    /// Where it stands.
    pub origin: Origin,
    /// The value of the program.
    pub said: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            found,
            origin,
            said,
        } = self;
        write!(f, "`{key}` is {found} ({origin}), and the program says {said}")
    }
}

/// A class that no module of a model has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingClass {
    /// Its name.
    pub name: String,
    /// The class of the model that is most like it.
    pub nearest: Option<String>,
}

/// The error for a setting whose value does not fit that of another one.
pub(super) fn contradiction(
    name: &'static str,
    found: &Sourced<impl ToString>,
    expected: &'static str,
    other: &Sourced<impl ToString>,
) -> PlanError {
    Contradiction::error(name, found, expected, other).into()
}

impl Hint for PlanError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Settings(error) => error.hint(),
            Self::Config(error) => error.hint(),
            Self::NoZeroOptimization { .. } => {
                Some("add `\"zero_optimization\": {\"stage\": 2}`, with the stage that is meant".to_owned())
            }
            Self::Ambiguous { .. } => Some(
                "say it in the DeepSpeed config only, or set the key to `auto` there; `accelerate \
                 config` writes a config file that leaves the rest out"
                    .to_owned(),
            ),
            Self::Unresolved { .. } => Some("set these keys to numbers".to_owned()),
            Self::Mismatches { .. } => Some("set these keys to `auto`".to_owned()),
            Self::BatchSizes(_) => Some(
                "change one of them, or set it to `auto`, or leave it out: any two give the third"
                    .to_owned(),
            ),
            Self::NoBatchSize { .. } => Some(
                "prepare a loader together with the model, or set `train_micro_batch_size_per_gpu`"
                    .to_owned(),
            ),
            Self::Role(mistake) => Some(mistake.hint()),
            Self::NoFolder { path_key, .. } => Some(format!("set `{path_key}` to a folder")),
            Self::UnknownClasses { missing, .. } => {
                let alike = missing.iter().filter_map(|class| class.nearest.as_ref());
                let alike: Vec<_> = alike.map(|name| format!("`{name}`")).collect();
                (!alike.is_empty()).then(|| format!("did you mean {}?", alike.join(", ")))
            }
            Self::UnknownPlugin { nearest, .. } => {
                let nearest = nearest.as_ref();
                nearest.map(|nearest| format!("did you mean `{nearest}`?"))
            }
            _ => None,
        }
    }
}

fn they_are(keys: &[Ambiguity]) -> &'static str {
    match keys {
        [_] => "this value is",
        _ => "these values are",
    }
}

fn unresolved(keys: &[UnresolvedAuto]) -> String {
    let keys = keys.iter().map(|auto| {
        let UnresolvedAuto { key, origin, needs } = auto;
        format!("`{key}` ({origin}) needs {needs}")
    });
    format!("cannot find out what `auto` is: {}", keys.collect::<Vec<_>>().join("; "))
}

fn quoted(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let names = names.into_iter();
    let names: Vec<_> = names.map(|name| format!("`{}`", name.as_ref())).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

/// Things one after another.
struct Listed<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.0.iter().enumerate() {
            let comma = if index > 0 { "; " } else { "" };
            write!(f, "{comma}{item}")?;
        }
        Ok(())
    }
}
