//! Why what the managers say cannot be believed.

use super::{HostListError, Manager};
use crate::{Error, Hint, Setting};

/// Why the place of this process could not be read from the variables of cluster managers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// A variable cannot be read, or two numbers exclude each other.
    #[error(transparent)]
    Variables(#[from] Error),

    /// Two managers state one fact differently.
    #[error(
        "{} and {} disagree about {meaning}: expected {left} to equal {right}",
        managers[0],
        managers[1]
    )]
    Disagreement {
        /// The fact, in words.
        meaning: &'static str,
        /// Who states `left` and who states `right`.
        managers: [Manager; 2],
        /// What one says.
        left: Setting,
        /// What the other says.
        right: Setting,
    },

    /// A manager started several processes, but does not number them.
    #[error("{known} tells of several processes, but `{expected}` is not set")]
    RankMissing {
        /// The number of processes.
        known: Setting,
        /// The variable that would hold the rank.
        expected: &'static str,
    },

    /// A list of host names that cannot be read.
    #[error("environment variable `{variable}` holds `{value}`: expected names of machines")]
    HostList {
        /// Name of the variable.
        variable: &'static str,
        /// The text found.
        value: String,
        /// What is wrong with it.
        source: HostListError,
    },

    /// A list of task counts that cannot be read.
    #[error(
        "environment variable `{variable}` holds `{value}`: expected numbers of tasks such as \
         `4(x2),3`"
    )]
    TaskList {
        /// Name of the variable.
        variable: &'static str,
        /// The text found.
        value: String,
    },

    /// A list and a number of the same manager contradict each other.
    #[error("`{list}` tells of {found} {meaning}: expected as many as {count}")]
    ListAgainstCount {
        /// What is counted.
        meaning: &'static str,
        /// Name of the variable with the list.
        list: &'static str,
        /// What the list adds up to.
        found: usize,
        /// The number.
        count: Setting,
    },
}

impl Hint for ClusterError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Variables(error) => return error.hint(),
            Self::Disagreement { left, right, .. } => format!(
                "start the job with one of the two; if `{}` or `{}` is left over from another \
                 job, unset it",
                left.variable, right.variable
            ),
            Self::RankMissing { known, .. } => format!(
                "start the processes with the manager's own command, or unset `{}`",
                known.variable
            ),
            Self::HostList { variable, .. } | Self::TaskList { variable, .. } => {
                format!("correct `{variable}` or unset it")
            }
            Self::ListAgainstCount { list, count, .. } => format!(
                "set `{list}` and `{}` to values of the same step, or unset both",
                count.variable
            ),
        })
    }
}
