//! The errors of this crate.

use std::fmt;

use crate::{
    Hint,
    launch::MeshMismatch,
    settings::{Origin, Sourced},
};

/// The result of reading or building a plan.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a plan could not be read or built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A variable holds a text that its type does not allow.
    #[error("environment variable `{variable}` holds `{value}`: expected {expected}")]
    InvalidVariable {
        /// Name of the variable.
        variable: &'static str,
        /// The text found.
        value: String,
        /// What is allowed, in words.
        expected: &'static str,
    },

    /// A variable holds bytes that are not valid UTF-8.
    #[error("environment variable `{variable}` is not valid UTF-8: `{value}`")]
    NotText {
        /// Name of the variable.
        variable: &'static str,
        /// The bytes found, with invalid ones replaced.
        value: String,
    },

    /// Two numbers of the topology exclude each other: `index` must be below `count`.
    #[error("expected {index} to be below {count}")]
    IndexOutOfRange {
        /// The index that is too large.
        index: Setting,
        /// The number of processes it counts among.
        count: Setting,
    },

    /// More processes on this machine than in the whole job.
    #[error("expected {part} to be at most {whole}")]
    PartAboveWhole {
        /// Processes on this machine.
        part: Setting,
        /// Processes of the job.
        whole: Setting,
    },

    /// The job spans machines, but nothing says where its processes meet.
    #[error(
        "`MASTER_ADDR` is not set, but the job has {world_size} processes and this machine only \
         {local_world_size}"
    )]
    MissingMasterAddress {
        /// Processes of the job.
        world_size: usize,
        /// Processes on this machine.
        local_world_size: usize,
    },

    /// A setting has a value that is not allowed.
    #[error("`{name}` is `{value}`: expected {expected} ({origin})")]
    InvalidSetting {
        /// Name of the setting.
        name: &'static str,
        /// The value found.
        value: String,
        /// What is allowed, in words.
        expected: &'static str,
        /// Where the value stands.
        origin: Origin,
    },

    /// Two places ask for different kinds of job.
    #[error("{first} and {second} exclude each other")]
    Exclusive {
        /// One of them.
        first: Origin,
        /// The other.
        second: Origin,
    },

    /// Two settings exclude each other.
    #[error(transparent)]
    Contradiction(Box<Contradiction>),

    /// The mesh is one for another number of processes.
    #[error(transparent)]
    Mesh(Box<MeshMismatch>),

    /// A setting is needed that nobody gave and that cannot be found out.
    #[error("`{name}` is not known: {why} ({because})")]
    Unsettled {
        /// Name of the setting.
        name: &'static str,
        /// Where the need comes from.
        because: Origin,
        /// Why it is needed.
        why: &'static str,
    },

    /// A name that is no mixed precision.
    #[error("unknown mixed precision `{value}`: expected one of `no`, `fp16`, `bf16`, `fp8`")]
    UnknownPrecision {
        /// The name found.
        value: String,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<String> {
        match self {
            Self::InvalidVariable { variable, .. } | Self::NotText { variable, .. } => {
                Some(format!("correct `{variable}` or unset it"))
            }
            Self::IndexOutOfRange { index, count } => disagreement(index, count),
            Self::PartAboveWhole { part, whole } => disagreement(part, whole),
            Self::MissingMasterAddress { .. } => Some(
                "export `MASTER_ADDR` with the host name or address of the machine that runs \
                 rank 0, the same on every machine"
                    .to_owned(),
            ),
            Self::Exclusive { .. } => Some("keep one of them".to_owned()),
            Self::Unsettled { name, .. } => Some(format!("give it with `--{name}`")),
            Self::Mesh(mesh) => Some(format!(
                "choose sizes whose product is {}, or give `--num_processes {}`",
                mesh.world_size, mesh.product
            )),
            Self::Contradiction { .. }
            | Self::InvalidSetting { .. }
            | Self::UnknownPrecision { .. } => None,
        }
    }
}

/// Two settings that exclude each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` is `{found}` ({origin}): expected {expected}, which is `{other}` ({other_origin})"
)]
#[non_exhaustive]
pub struct Contradiction {
    /// Name of the first.
    pub name: &'static str,
    /// Its value.
    pub found: String,
    /// Where that came from.
    pub origin: Origin,
    /// What would fit, in words that name the other setting.
    pub expected: &'static str,
    /// Value of the other one.
    pub other: String,
    /// Where that came from.
    pub other_origin: Origin,
}

impl Contradiction {
    /// The error for a setting whose value does not fit that of another one.
    pub(crate) fn error(
        name: &'static str,
        found: &Sourced<impl ToString>,
        expected: &'static str,
        other: &Sourced<impl ToString>,
    ) -> Error {
        Error::Contradiction(Box::new(Self {
            name,
            found: found.value.to_string(),
            origin: found.origin.clone(),
            expected,
            other: other.value.to_string(),
            other_origin: other.origin.clone(),
        }))
    }
}

fn disagreement(left: &Setting, right: &Setting) -> Option<String> {
    Some(format!(
        "set `{}` and `{}` to values of the same job, or unset both and start the program with \
         `accelerate launch`",
        left.variable, right.variable
    ))
}

/// One number of the topology and the variable it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The variable that was read, or that would have been.
    pub variable: &'static str,
    /// The value in force.
    pub value: usize,
    /// Whether the variable was set. If not, `value` is its default.
    pub given: bool,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            variable,
            value,
            given,
        } = self;
        match given {
            true => write!(f, "`{variable}` ({value})"),
            false => write!(f, "`{variable}` (not set, so {value})"),
        }
    }
}
