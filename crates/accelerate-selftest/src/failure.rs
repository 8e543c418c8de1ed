//! What can go wrong outside of a stage's own comparisons.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

/// Why the program, or a step of it, could not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Accelerate(#[from] accelerate::Error),
    #[error(transparent)]
    Torch(#[from] accelerate_torch::Error),
    #[error(transparent)]
    Plan(#[from] accelerate_plan::Error),
    #[error("a tensor operation failed")]
    Tensor(#[from] accelerate::tch::TchError),
    #[error("cannot write a temporary folder")]
    TemporaryFolder(#[from] std::io::Error),
    #[error("no stage `{name}`; there are {}", known.join(", "))]
    NoSuchStage {
        name: String,
        known: Vec<&'static str>,
    },
    #[error("rank {rank} left a note that cannot be read")]
    Note {
        rank: usize,
        source: serde_json::Error,
    },
    #[error("this step needs several processes")]
    Alone,
    #[error("`--break_stage` asked for this error")]
    OnPurpose,
}

/// A stage failed.
pub(crate) const FAILED: u8 = 1;
/// The command line is wrong.
const USAGE: u8 = 2;
/// The time was over.
pub(crate) const TIMED_OUT: u8 = 3;

impl Failure {
    /// The whole story, causes included, on one line.
    pub(crate) fn describe(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(source) = cause {
            text += &format!(": {source}");
            cause = source.source();
        }
        text
    }

    /// What the program ends with.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::NoSuchStage { .. } => USAGE,
            _ if self.is_about_missing_ranks() => TIMED_OUT,
            _ => FAILED,
        })
    }

    fn is_about_missing_ranks(&self) -> bool {
        let error = match self {
            Self::Torch(error) | Self::Accelerate(accelerate::Error::Torch(error)) => error,
            _ => return false,
        };
        matches!(error, accelerate_torch::Error::RanksMissing { .. })
    }
}

/// A time for people: `0.12 s`.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_are_told_from_other_failures() {
        let missing = accelerate_torch::Error::RanksMissing {
            address: "127.0.0.1:1".to_owned(),
            world: 2,
            missing: vec![1],
            timeout: Duration::from_secs(1),
        };
        let wrapped = Failure::from(accelerate::Error::from(missing));
        assert_eq!(wrapped.exit_code(), ExitCode::from(TIMED_OUT));
        assert!(wrapped.describe().contains("missing [1]"));
        assert_eq!(Failure::OnPurpose.exit_code(), ExitCode::from(FAILED));
    }
}
